"""A card of each kind of object, as they are after some work on a cluster."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jflow as tf
from jflow.base.cards import Card, CardTable
from jflow.data import Dataset

HOSTILE_NAMES = [
    "<script>alert(1)</script>",
    '"><img src=https://example.com/x onerror=alert(1)>',
    "</div></table><style>*{display:none}</style>",
    "\u202egnp.exe",
    "x" * 10_000,
]

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Cards</title>
<style>body{{margin:16px;font-family:sans-serif;color-scheme:light dark}}
body{{columns:{columns};column-gap:16px}}
section{{break-inside:avoid;margin-bottom:10px}}h1,h2{{font-size:13px;margin:2px 0}}</style></head>
<body><main><h1>Cards</h1>{cards}</main></body></html>
"""


def page(cards: dict[str, str], columns: int = 1) -> str:
    """A document with cards, each below its title."""
    sections = (
        f"<section><h2>{escape(title)}</h2>{card}</section>" for title, card in cards.items()
    )
    return PAGE.format(cards="".join(sections), columns=columns)


def hostile() -> dict[str, str]:
    """Cards of objects whose names try to leave their place."""
    cards = {}
    with tf.Graph().as_default():
        for number, name in enumerate(HOSTILE_NAMES):
            queue = tf.FIFOQueue(1, [tf.int32], shared_name=name)
            cards[f"hostile {number}"] = queue._repr_html_()
            table = CardTable(name, (name, name), [(name, name)], is_open=True)
            cards[f"hostile table {number}"] = Card(
                name, facts=((name, name),), tables=(table,)
            ).html()
    return cards


def every() -> dict[str, str]:
    """A card of each kind of object, by its title."""
    return {title: value._repr_html_() for title, value in _objects()}


def _objects() -> Iterator[tuple[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        yield from _of_graph(Path(folder))
    with tf.LocalCluster(ps=1, workers=2) as cluster:
        yield from _of_cluster(cluster)
        cluster.kill("worker", 1)
        yield "a cluster with a killed task", cluster
    yield "a dataset", Dataset.range(100).map(lambda x: x * 2).shuffle(10, seed=1).batch(8)


def _of_graph(folder: Path) -> Iterator[tuple[str, Any]]:
    with tf.name_scope("layer"):
        x = tf.placeholder(tf.float32, (None, 3), name="x")
        w = tf.Variable(np.ones((3, 2), np.float32), name="w")
        y = tf.nn.relu(x @ w)
    with tf.container("experiments"):
        queue = tf.FIFOQueue(10, [tf.float32], shapes=[(3,)], shared_name="jobs")
    yield "a tensor", y
    yield "an operation", y.op
    yield "a variable of a graph", w
    yield "a queue of a graph", queue
    yield "a container", tf.container("experiments")
    saver = tf.train.Saver()
    with tf.Session() as session, tf.trace_steps() as traces:
        session.run(tf.global_variables_initializer())
        session.run(y, {x: np.ones((1, 3), np.float32)})
        yield "a session", session
        yield "a placement", session.placement(y, [x])
        yield "an explanation", session.explain(y, [x])
        yield "a trace", traces[-1]
        for step in range(3):
            path = saver.save(session, os.fspath(folder / "model"), step)
    yield "a checkpoint", tf.train.load_checkpoint(path)
    yield "a directory of checkpoints", tf.train.get_checkpoint_state(folder)
    yield "a graph", tf.get_default_graph()


def _of_cluster(cluster: tf.LocalCluster) -> Iterator[tuple[str, Any]]:
    yield "a cluster", cluster
    with tf.connect(cluster.target()) as connection:
        counter = tf.Variable(1.0, name="counter")
        queue = tf.FIFOQueue(3, [tf.float32], shapes=[()], shared_name="samples")
        queue.put(1.0)

        @tf.function
        def scaled(value: jax.Array, factor: float = 2.0) -> jax.Array:
            return value * factor + counter

        scaled(np.float32(1))
        scaled(np.ones(3, np.float32))
        yield "an eager variable", counter
        yield "an eager queue", queue
        yield "a function", scaled
        yield "a connection", connection
    strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)

    @tf.function
    def successor(value: jax.Array) -> jax.Array:
        return value + 1

    with tf.ClusterCoordinator(strategy) as coordinator:
        result = coordinator.schedule(successor, (np.float32(1),))
        coordinator.join()
        yield "a coordinator", coordinator
        yield "a remote value", result
