"""A program for tests of export that run in two processes: a graph is built here, trained there.

Usage: python -m tests.client.export.programs build|train FILE. The child prints what it has found.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import numpy as np
import optax

import jflow as tf

ROWS = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
N_STEPS = 20


def build() -> tf.Graph:
    """A graph that trains a small network, with a random key, a queue and unknown sizes."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, (None, 3), name="x")
        with tf.device("/cpu:0"), tf.container("models"):
            w = tf.Variable(np.full((3, 4), 0.1, np.float32), name="w")
        v = tf.Variable(np.ones(4, np.float32) / 3, name="v")
        tf.Variable(jax.random.key(7), name="key", trainable=False)
        hidden = tf.nn.relu(tf.numpy.dot(x, w) + 0.1)
        error = tf.numpy.dot(hidden, v) - tf.numpy.sum(x, axis=1)
        loss = tf.identity(tf.numpy.mean(error**2), name="loss")
        step = tf.train.get_or_create_global_step()
        train = tf.train.Optimizer(optax.sgd(0.05, momentum=0.5)).minimize(loss, global_step=step)
        queue = tf.FIFOQueue(4, [tf.float32, tf.string], shapes=[(), ()], name="queue")
        put = queue.enqueue([loss, "seen"], name="put")
        queue.dequeue(name="get")
        tf.train.add_queue_runner(tf.train.QueueRunner(queue, [put] * 2))
        graph.add_to_collection("train", train)
        graph.add_to_collection("init", tf.global_variables_initializer())
        graph.add_to_collection("settings", {"rate": 0.05, "inputs": [x, None]})
    return graph


def train(graph: tf.Graph) -> dict[str, Any]:
    """Trains the graph, and derives its loss anew."""
    (update,), (init,) = graph.get_collection("train"), graph.get_collection("init")
    with graph.as_default(), tf.Session() as session:
        session.run(init)
        feeds = {"x:0": ROWS}
        losses = [float(session.run("loss:0", feeds))]
        for _ in range(N_STEPS):
            session.run(update, feeds)
        losses.append(float(session.run("loss:0", feeds)))
        grads = tf.gradients(graph.get_tensor_by_name("loss:0"), tf.trainable_variables())
        session.run("put", feeds)
        _, text = session.run(["get:0", "get:1"])
        return {
            "losses": losses,
            "step": int(session.run("global_step:0")),
            "slopes": [float(np.sum(one)) for one in session.run(grads, feeds)],
            "w": session.run("w:0").tolist(),
            "text": text.decode(),
            "graph": str(graph),
            "variables": [repr(one) for one in tf.global_variables()],
            "origin": graph.get_operation_by_name("loss").origin,
        }


def main(what: str, file: str) -> None:
    """Builds a graph and writes it, or reads and trains it."""
    if what == "build":
        tf.train.export_meta_graph(file, build())
        return
    with tf.Graph().as_default() as graph:
        tf.train.import_meta_graph(file)
        json.dump(train(graph), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
