"""Strategies choose on which devices a mesh is; variables move there with their sharding."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jflow as tf
from jflow import errors
from jflow.testing import wait_until
from tests.mesh.clusters import cluster as cluster
from tests.state.moves.placing import all_on

ONES = np.ones((64, 8), np.float32)
N_LOADS = 2


@pytest.fixture
def target(cluster: tf.LocalCluster) -> Iterator[str]:
    yield cluster.target()
    tf.Session.reset(cluster.target())


class Counter:
    """A graph with a sharded variable on any two devices of a worker, which steps count up."""

    def __init__(self) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.device("/job:worker", mesh={"m": 2}):
            self.v = tf.Variable(0 * ONES, name="v", sharding=P("m"))
            self.add = self.v.assign_add(ONES)


def test_a_strategy_chooses_the_devices_of_a_mesh_that_names_none(target: str) -> None:
    with tf.Graph().as_default() as graph:
        with tf.device("/job:worker", mesh={"m": 4}):
            free = [tf.numpy.sin(tf.constant(ONES * i)) for i in range(4)]
        with tf.device("/job:worker/task:1/device:MESH:1", mesh={"m": 4}):
            pinned = tf.numpy.cos(tf.constant(ONES))
    for where in ("task:1/device:MESH:0", "task:0/device:MESH:1"):
        config = tf.ConfigProto(placement=all_on(where))
        with tf.Session(target, graph=graph, config=config) as session:
            places = session.placement([*free, pinned])
            assert {str(places[x.op]) for x in free} == {f"/job:worker/{where}[m=4]"}
            assert str(places[pinned.op]) == "/job:worker/task:1/device:MESH:1[m=4]"
            np.testing.assert_allclose(session.run(free[3]), np.sin(ONES * 3), rtol=1e-6)
    with tf.Session(target, graph=graph, config=tf.ConfigProto(placement="auto")) as session:
        assert all("MESH" in str(session.placement(x)[x.op]) for x in free)


def test_a_sharded_variable_moves_under_load_and_loses_no_update(target: str) -> None:
    counter, is_over, counts = Counter(), threading.Event(), [0] * N_LOADS

    def load(which: int) -> None:
        own = Counter()
        with tf.Session(target, graph=own.graph) as session:
            while not is_over.is_set():
                session.run(own.add)
                counts[which] += 1

    with tf.Session(target, graph=counter.graph) as session, ThreadPoolExecutor() as threads:
        session.run(counter.v.initializer)
        running = [threads.submit(load, which) for which in range(N_LOADS)]
        try:
            for where in ("task:1/device:MESH:0", "task:1/device:MESH:3", "task:0/device:MESH:2"):
                before = [*counts]
                wait_until(lambda before=before: min(np.subtract(counts, before)) > 2)
                (moved,) = session.replace(all_on(where), fetches=counter.add, min_gain=None).moved
                assert str(moved.target) == f"/job:worker/{where}[m=2]"
            before = [*counts]
            wait_until(lambda: min(np.subtract(counts, before)) > 2)
        finally:
            is_over.set()
            for one in running:
                one.result()
        np.testing.assert_array_equal(session.run(counter.v), ONES * sum(counts))
    with tf.connect(target), tf.device("/job:worker", mesh={"m": 2}):
        found = tf.Variable(ONES, name="v")
        assert found.sharding == P("m", None)
        np.testing.assert_array_equal(found.numpy(), ONES * sum(counts))


def test_a_mesh_that_the_target_cannot_have_moves_nothing(target: str) -> None:
    """The strategy is asked only about what there is."""
    counter = Counter()
    with tf.Session(target, graph=counter.graph) as session:
        session.run(counter.v.initializer)
        assert not session.replace(all_on("device:MESH:4"), min_gain=None).moved
        session.run(counter.add)
        with (
            tf.device("/job:worker/task:1", mesh={"m": 16}),
            pytest.raises(errors.InvalidArgumentError, match="a mesh of 16 devices"),
        ):
            session.run(tf.numpy.sin(tf.constant(ONES)))
