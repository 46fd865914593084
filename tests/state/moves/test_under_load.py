"""State that moves while steps of several sessions use it all the time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle
from typing import Any

import pytest

import jflow as tf
from jflow.launch.testing.backends import BackendUnderTest, in_process, local
from jflow.testing import wait_until
from tests.state.moves.placing import all_on

KINDS = {"local": local, "in_process": lambda: in_process({"ps": 1, "worker": 2})}
N_THREADS = 4


@pytest.fixture(params=list(KINDS))
def backend(request: pytest.FixtureRequest) -> Iterator[BackendUnderTest]:
    with KINDS[request.param]() as backend:
        yield backend


def moved_while(
    session: tf.Session,
    fetch: Any,
    n_moves: int,
    steps: list[Future[Any]],
    done: list[int],
    moved: list[int],
) -> None:
    """Moves the state of a fetch from device to device; between two moves some steps end.

    The steps must go on until `moved`, which counts the moves, is `n_moves`.
    """
    for name in cycle([device.name for device in session.list_devices() if "CPU" in device.name]):
        if moved[0] >= n_moves or any(step.done() for step in steps):
            break
        seen = sum(done)
        moved[0] += len(session.replace(all_on(name), fetches=fetch, min_gain=None).moved)
        wait_until(lambda: sum(done) > seen or any(step.done() for step in steps))  # noqa: B023
    failed = [step for step in steps if step.done() and step.exception()]
    for step in failed:
        step.result()
    assert moved[0] >= n_moves, "a step ended before all moves"


@pytest.mark.parametrize(
    ("n_moves", "n_steps"),
    [pytest.param(6, 200, id="short"), pytest.param(50, 10_000, id="long", marks=pytest.mark.long)],
)
def test_no_increment_is_lost_or_done_twice(
    backend: BackendUnderTest, n_moves: int, n_steps: int
) -> None:
    done, moved = [0] * N_THREADS, [0]

    def made() -> tuple[tf.Graph, tf.Variable, Any]:
        with tf.Graph().as_default() as graph:
            v = tf.Variable(0, name="v")
            return graph, v, v.assign_add(1)

    def count(number: int, session: tf.Session, add: Any) -> list[int]:
        found: list[int] = []
        while len(found) < n_steps // N_THREADS or moved[0] < n_moves:
            found.append(int(session.run(add)))
            done[number] += 1
        return found

    with ExitStack() as stack:
        graph, v, add = made()
        mover = stack.enter_context(backend.session(graph=graph))
        mover.run(v.initializer)
        threads = stack.enter_context(ThreadPoolExecutor(N_THREADS))
        steps = []
        for number in range(N_THREADS):
            own, session = add, mover
            if backend.shared:
                graph, _, own = made()
                session = stack.enter_context(backend.session(number, graph=graph))
            steps.append(threads.submit(count, number, session, own))
        try:
            moved_while(mover, add, n_moves, steps, done, moved)
        finally:
            moved[0] = n_moves  # the threads end whatever has failed
        found = sorted(value for step in steps for value in step.result())
        assert len(found) >= n_steps
        assert found == list(range(1, len(found) + 1))
        assert mover.run(v) == len(found)


def test_every_element_of_a_queue_arrives_once_and_in_order(backend: BackendUnderTest) -> None:
    n_elements, n_moves = 60, 6
    done, moved = [0], [0]

    def made() -> tuple[Any, ...]:
        with tf.Graph().as_default() as graph:
            queue = tf.FIFOQueue(4, [tf.int32] * 2, shapes=[()] * 2, shared_name="q", name="q")
            feeds = [tf.placeholder(tf.int32, ()) for _ in range(2)]
            return graph, feeds, queue.enqueue(feeds), tf.numpy.stack(queue.dequeue()) + 0

    def produce(number: int, session: tf.Session, feeds: Any, put: Any, _: Any) -> None:
        for n in range(n_elements):
            # So that elements are left until the last move.
            wait_until(lambda: moved[0] * n_elements >= (n - 5) * n_moves)  # noqa: B023
            session.run(put, dict(zip(feeds, (number, n), strict=True)))

    def consume(_: int, session: tf.Session, __: Any, ___: Any, take: Any) -> list[tuple[int, int]]:
        found = []
        for n in range(n_elements):
            # One consumer may be faster by far: it must not end before the last move either.
            wait_until(lambda: n < n_elements - 1 or moved[0] >= n_moves)  # noqa: B023
            found.append(tuple(session.run(take).tolist()))
            done[0] += 1
        return found

    with ExitStack() as stack:
        graph, *parts = made()
        mover = stack.enter_context(backend.session(graph=graph))
        threads = stack.enter_context(ThreadPoolExecutor(4))
        steps = []
        for number in range(4):
            session, own = mover, parts
            if backend.shared:
                graph, *own = made()
                session = stack.enter_context(backend.session(number, graph=graph))
            act = consume if number % 2 else produce
            steps.append(threads.submit(act, number, session, *own))
        try:
            # Of the producers: a consumer may end early, having taken more than the other one.
            moved_while(mover, parts[2], n_moves, steps[::2], done, moved)
        finally:
            moved[0] = n_moves
        found = [step.result() for step in steps]
        taken = [found[1], found[3]]
        assert sorted(taken[0] + taken[1]) == [(k, n) for k in (0, 2) for n in range(n_elements)]
        for one in taken:
            for number in (0, 2):
                order = [n for k, n in one if k == number]
                assert order == sorted(order)
