"""Steps whose answers are lost between the server and the client: applied once, and answered."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import jflow as tf
from jflow.testing import CallFunction, FaultProxy, failpoints
from tests.state.effects.attempts import PS0, WORKER, servers


@pytest.fixture
def cluster() -> Iterator[list[tf.train.Server]]:
    """A parameter server and a worker in this process."""
    with servers(1, 1) as running:
        yield running


def address_of(cluster: list[tf.train.Server]) -> str:
    """The address of the worker, at which clients connect."""
    return cluster[-1].target.partition("://")[2]


class Cutting:
    """Cuts the connections of a proxy each time that a step was applied, with some probability.

    Attributes:
      n_cut: how often it has.
    """

    def __init__(self, proxy: FaultProxy, probability: float) -> None:
        self._proxy, self._probability = proxy, probability
        self._rng = random.Random(0)
        self.n_cut = 0

    def __call__(self, _: str) -> None:
        if self._rng.random() < self._probability:
            self.n_cut += 1
            self._proxy.cut()


def updated(
    cluster: list[tf.train.Server], n_updates: int, n_threads: int, probability: float
) -> None:
    """Counts while answers are lost, in several threads, and checks the sum and each answer."""
    with tf.device(PS0):
        counter = tf.Variable(np.float32(0.0), name="counter")
        add = counter.assign_add(1.0)
    seen: list[float] = []

    def count(session: tf.Session) -> None:
        for _ in range(n_updates // n_threads):
            seen.append(float(session.run(add)))

    with (
        FaultProxy(address_of(cluster)) as proxy,
        tf.Session(proxy.target) as session,
    ):
        session.run(counter.initializer)
        cutting = Cutting(proxy, probability)
        with failpoints({"worker.after_effect": CallFunction(cutting)}):
            threads = [threading.Thread(target=count, args=(session,)) for _ in range(n_threads)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert session.run(counter) == n_updates
    assert cutting.n_cut > 0.3 * probability * n_updates
    assert sorted(seen) == [*range(1, n_updates + 1)], "an answer was lost, or given twice"


def test_the_sum_is_exact_although_answers_are_lost(cluster: list[tf.train.Server]) -> None:
    updated(cluster, 60, 2, probability=0.1)


@pytest.mark.long
def test_the_sum_of_many_updates_is_exact_although_answers_are_lost(
    cluster: list[tf.train.Server],
) -> None:
    updated(cluster, 10_000, 4, probability=0.01)


def test_an_eager_update_whose_answer_is_lost_is_applied_once(
    cluster: list[tf.train.Server],
) -> None:
    with FaultProxy(address_of(cluster)) as proxy, tf.connect(proxy.target):
        with tf.device(PS0):
            counter = tf.Variable(np.float32(0.0))
        counter.assign_add(1.0)
        cutting = Cutting(proxy, 1.0)
        with failpoints({"worker.after_effect": CallFunction(cutting, times=1)}):
            counter.assign_add(1.0)
        assert cutting.n_cut == 1
        assert counter.numpy() == 2.0


def test_a_lost_connection_that_does_not_come_back_is_an_error(
    cluster: list[tf.train.Server],
) -> None:
    with tf.device(PS0):
        counter = tf.Variable(np.float32(0.0), name="counter")
        add = counter.assign_add(1.0)
    config = tf.ConfigProto(connect_timeout_in_ms=200)
    with (
        FaultProxy(address_of(cluster)) as proxy,
        tf.Session(proxy.target, config=config) as session,
    ):
        session.run(counter.initializer)

        def vanish(_: str) -> None:
            proxy.refuse()
            proxy.cut()

        points = failpoints({"worker.after_effect": CallFunction(vanish, times=1)})
        with points, pytest.raises(tf.errors.UnavailableError):
            session.run(add)


def test_a_step_on_several_tasks_is_not_repeated_by_itself(
    cluster: list[tf.train.Server],
) -> None:
    with tf.device(WORKER):
        x = tf.constant(1.0) * 2.0
    with tf.device(PS0):
        counter = tf.Variable(np.float32(0.0), name="counter")
        add = counter.assign_add(x)
    with FaultProxy(address_of(cluster)) as proxy, tf.Session(proxy.target) as session:
        session.run(counter.initializer)
        points = failpoints({"master.after_run": CallFunction(lambda _: proxy.cut(), times=1)})
        with points, pytest.raises(tf.errors.UnavailableError):
            session.run(add)
        assert session.run(counter) == 2.0
