"""Sharing of queues: by which sessions, for how long, and what happens to waiting attempts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jflow as tf
from tests.client.queues.helpers import (
    Driver,
    got,
    integers,
    row,
    session,
    started,
    wait_until,
)
from tests.clusters import Backend
from tests.scripts import script_process

WAITING = Path(__file__).parents[2] / "programs" / "waiting.py"


def test_a_queue_with_a_shared_name_outlives_its_session(cluster: Backend) -> None:
    with session(cluster) as sess:
        Driver(integers(shared_name="q"), sess).put(1, 2)
    tf.reset_default_graph()
    tf.constant(0.0)
    same = integers(shared_name="q", name="another_name")
    with session(cluster, 1) as sess:
        assert Driver(same, sess).take(2) == [1, 2]


def test_a_queue_without_one_belongs_to_its_session_even_on_a_cluster(backend: Backend) -> None:
    queue = integers(name="q")
    with session(backend) as one, session(backend, 1) as other:
        mine, yours = Driver(queue, one), Driver(queue, other)
        mine.put(1)
        yours.put(2, 3)
        assert (mine.size, yours.size) == (1, 2)
        assert (mine.take(), yours.take(2)) == ([1], [2, 3])
        mine.put(4)
    with session(backend) as later:
        assert later.run(queue.size()) == 0


def test_local_sessions_share_nothing() -> None:
    queue = integers(shared_name="q")
    with tf.Session() as one, tf.Session() as other:
        one.run(queue.enqueue(1))
        assert (one.run(queue.size()), other.run(queue.size())) == (1, 0)


def test_containers_and_devices_tell_queues_of_one_name_apart(backend: Backend) -> None:
    queues = [integers(shared_name="q")]
    with tf.container("other"):
        queues.append(integers(shared_name="q"))
    for device in backend.devices:
        with tf.device(device):
            queues.append(integers(shared_name="q"))
    # Where queues without a device go is the placer's affair; it may be one of the devices.
    with session(backend) as sess:
        for n, queue in enumerate(queues[1:], 1):
            sess.run(queue.enqueue_many(row(*range(n))))
        assert [sess.run(queue.size()) for queue in queues[1:]] == [*range(1, len(queues))]


def test_a_variable_and_a_queue_may_have_one_name(backend: Backend) -> None:
    x = tf.Variable(5, name="q")
    queue = integers(shared_name="q")
    with session(backend) as sess:
        sess.run([x.initializer, queue.enqueue(7)])
        assert sess.run([x, queue.dequeue()]) == [5, 7]


def test_two_handles_of_one_graph_are_one_queue(backend: Backend) -> None:
    one, other = integers(shared_name="q"), integers(shared_name="q")
    with session(backend) as sess:
        sess.run(one.enqueue(3))
        assert sess.run(other.dequeue()) == 3


OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "kind": (
        lambda: tf.PaddingFIFOQueue(10, [tf.int32], [()], shared_name="q"),
        "another kind. Expected PaddingFIFOQueue, found FIFOQueue",
    ),
    "capacity": (lambda: integers(11, shared_name="q"), "another capacity. Expected 11, found 10"),
    "bytes": (
        lambda: integers(shared_name="q", capacity_bytes=8),
        "another capacity in bytes. Expected 8, found None",
    ),
    "dtype": (
        lambda: tf.FIFOQueue(10, [tf.float32], [()], shared_name="q"),
        r"another component types. Expected \['float32'\], found \['int32'\]",
    ),
    "number": (
        lambda: tf.FIFOQueue(10, [tf.int32, tf.int32], [(), ()], shared_name="q"),
        r"component types. Expected \['int32', 'int32'\], found \['int32'\]",
    ),
    "shape": (
        lambda: tf.FIFOQueue(10, [tf.int32], [(2,)], shared_name="q"),
        r"another component shapes. Expected \[\(2,\)\], found \[\(\)\]",
    ),
    "no shape": (
        lambda: tf.FIFOQueue(10, [tf.int32], shared_name="q"),
        r"component shapes. Expected \[any shape\], found \[\(\)\]",
    ),
    "names": (
        lambda: tf.FIFOQueue(10, [tf.int32], [()], names=["n"], shared_name="q"),
        r"another names. Expected \['n'\], found \[\]",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_queue_that_exists_in_another_way_is_refused_and_unharmed(
    backend: Backend, other: str
) -> None:
    make, message = OTHERS[other]
    right, wrong = integers(shared_name="q"), make()
    with session(backend) as sess:
        driver = Driver(right, sess)
        driver.put(1)
        for fetch in (wrong.size(), wrong.dequeue(), wrong.close()):
            with pytest.raises(tf.errors.InvalidArgumentError, match=message) as caught:
                sess.run(fetch)
            assert "Shared queue 'q'" in str(caught.value)
        assert driver.take() == [1]
        assert not driver.is_closed


@pytest.mark.parametrize("what", ["min_after_dequeue", "seed"])
def test_shuffle_queues_of_one_name_must_agree(backend: Backend, what: str) -> None:
    def shuffle(**changed: int) -> tf.RandomShuffleQueue:
        options = {"min_after_dequeue": 2, "seed": 3} | changed
        return tf.RandomShuffleQueue(10, dtypes=[tf.int32], shared_name="q", **options)

    right, wrong = shuffle(), shuffle(**{what: 4})
    with session(backend) as sess:
        sess.run(right.enqueue(1))
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"another {what}.*4.*found"):
            sess.run(wrong.size())
        assert sess.run(right.size()) == 1


def test_negative_capacities_are_all_the_same(backend: Backend) -> None:
    one, other = integers(-1, shared_name="q"), integers(-7, shared_name="q")
    with session(backend) as sess:
        sess.run(one.enqueue(1))
        assert sess.run(other.size()) == 1


def test_a_dequeue_through_one_server_is_woken_through_another(cluster: Backend) -> None:
    queue = integers(shared_name="q")
    with session(cluster, 0) as here, session(cluster, 1) as there:
        near, far = Driver(queue, here), Driver(queue, there)
        near.put(1)
        waiting = far.begin_taking(2)
        near.put(2)
        assert got(waiting).tolist() == [1, 2]


def test_a_session_that_is_closed_gives_back_what_its_steps_had_taken(cluster: Backend) -> None:
    queue = integers(shared_name="q")
    with session(cluster, 0) as here:
        near = Driver(queue, here)
        near.put(1, 2)
        there = session(cluster, 1)
        waiting = Driver(queue, there).begin_taking(5)
        there.close()
        with pytest.raises(tf.errors.CancelledError):
            got(waiting)
        wait_until(lambda: near.size == 2)
        assert near.take(2) == [1, 2]


def test_a_step_of_a_session_that_is_closed_is_cancelled(backend: Backend) -> None:
    queue = integers()
    sess = session(backend)
    driver = Driver(queue, sess)
    driver.put(1)
    waiting = driver.begin_taking(2)
    sess.close()
    with pytest.raises(tf.errors.CancelledError):
        got(waiting)
    with pytest.raises(RuntimeError, match="closed Session"):
        sess.run(queue.size())


@pytest.mark.parametrize("n_waits", [1, 1000])
def test_a_killed_client_gives_back_what_it_had_taken(cluster: Backend, n_waits: int) -> None:
    queue = integers(shared_name="waited_for")
    with session(cluster) as sess:
        driver = Driver(queue, sess)
        driver.put(1, 2)
        with script_process(WAITING, cluster.targets[-1], "3", str(n_waits)) as client:
            assert client.read_line() == "waiting"
            wait_until(lambda: driver.size == 0)
            client.kill()
        wait_until(lambda: driver.size == 2)
        for number in range(3, 11):  # what still waits would take them
            driver.put(number)
            assert driver.size == number
        assert driver.take(10) == [*range(1, 11)]


def test_reset_cancels_what_waits_there_and_frees_the_queue(cluster: Backend) -> None:
    queue = integers(shared_name="q")
    with tf.container("other"):
        kept = integers(shared_name="q")
    here, there = session(cluster, 0), session(cluster, 1)
    is_one_server = len(cluster.targets) == 1
    try:
        here.run(kept.enqueue(5))
        driver = Driver(queue, there)
        driver.put(1)
        waiting = driver.begin_taking(2)
        tf.Session.reset(cluster.targets[0])
        with pytest.raises(tf.errors.CancelledError):
            got(waiting)
        with pytest.raises(tf.errors.AbortedError, match="open a new one"):
            here.run(queue.size())
        if is_one_server:
            with pytest.raises(tf.errors.AbortedError):
                there.run(queue.size())
        else:
            assert driver.size == 0  # there is a new one
        with session(cluster) as new:
            assert new.run([queue.size(), kept.size()]) == [0, 1]
    finally:
        here.close()
        there.close()


def test_a_closed_shared_queue_stays_closed_until_it_is_freed(cluster: Backend) -> None:
    with tf.container("other"):
        queue = integers(shared_name="q")
    with session(cluster) as sess:
        sess.run(queue.close())
    with session(cluster) as sess:
        assert sess.run(queue.is_closed())
    cluster.reset("other")
    with session(cluster) as sess:
        assert not sess.run(queue.is_closed())
        sess.run(queue.enqueue(1))


def test_many_threads_and_sessions_hand_over_everything_once(backend: Backend) -> None:
    n_threads, n_each = 4, 25
    queue = integers(3, shared_name="q")
    number = tf.placeholder(tf.int32, ())
    enqueue, dequeue = queue.enqueue(number), queue.dequeue()
    sessions = [session(backend, which if backend.shared else 0) for which in range(2)]
    if not backend.shared:
        sessions[1].close()
        sessions[1] = sessions[0]

    def produce(thread: int) -> None:
        for i in range(n_each):
            sessions[thread % 2].run(enqueue, {number: thread * n_each + i})

    def consume(thread: int) -> list[int]:
        return [int(sessions[thread % 2].run(dequeue)) for _ in range(n_each)]

    try:
        producers = [started(produce, thread) for thread in range(n_threads)]
        consumers = [started(consume, thread) for thread in range(n_threads)]
        for producer in producers:
            got(producer)
        taken = [got(consumer) for consumer in consumers]
        assert sorted(number for each in taken for number in each) == [*range(n_threads * n_each)]
        for each in taken:
            for first in range(n_threads):
                of_one = [number for number in each if number // n_each == first]
                assert of_one == sorted(of_one)
    finally:
        for each_session in sessions:
            each_session.close()
