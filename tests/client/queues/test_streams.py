"""Writers and readers of eager queues: order, what is known to be in, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import jflow as tf
from tests.client.queues.helpers import PATIENCE_S, got, started, wait_until
from tests.clusters import Backend

CONFIG = tf.ConfigProto(operation_timeout_in_ms=int(PATIENCE_S * 1000))


@pytest.fixture(autouse=True)
def connection(backend: Backend) -> Iterator[tf.Connection]:
    with tf.connect(backend.targets[0], CONFIG) as connection:
        yield connection


def integers(capacity: int = 1000) -> tf.FIFOQueue:
    return tf.FIFOQueue(capacity, [tf.int32], [()])


def writers() -> list[threading.Thread]:
    """The threads of writers that are alive."""
    return [thread for thread in threading.enumerate() if thread.name == "jflow queue writer"]


def test_what_is_written_comes_in_order_and_is_in_after_the_block() -> None:
    queue = integers()
    with queue.writer() as writer:
        for n in range(500):
            writer.put(n)
    assert writer.n_acknowledged == 500
    assert queue.get_many(500).tolist() == [*range(500)]
    assert not writers()


def test_after_a_flush_all_so_far_is_in() -> None:
    queue = integers()
    with queue.writer() as writer:
        for n in range(1, 4):
            writer.put(n)
            writer.flush(PATIENCE_S)
            assert (writer.n_acknowledged, queue.size()) == (n, n)


def test_elements_may_be_changed_once_they_are_put() -> None:
    queue = tf.FIFOQueue(100, [tf.float32], [(3,)])
    row = np.zeros(3, np.float32)
    with queue.writer() as writer:
        for n in range(50):
            row[:] = n
            writer.put(row)
    np.testing.assert_array_equal(queue.get_many(50)[:, 0], np.arange(50))


def test_elements_of_several_shapes_keep_their_order() -> None:
    queue = tf.FIFOQueue(100, [tf.int32, tf.string])
    lengths = [1, 1, 2, 1, 3, 3, 3, 1]
    with queue.writer() as writer:
        for n, length in enumerate(lengths):
            writer.put((np.full(length, n, np.int32), "x" * n))
    found = [queue.get() for _ in lengths]
    assert [numbers.tolist() for numbers, _ in found] == [[n] * k for n, k in enumerate(lengths)]
    assert [text for _, text in found] == [b"x" * n for n in range(len(lengths))]


def test_a_wrong_element_is_refused_and_the_writer_goes_on() -> None:
    queue = integers()
    with queue.writer() as writer:
        writer.put(1)
        for wrong in (1.5, [1, 2], "1"):
            with pytest.raises((TypeError, ValueError)):
                writer.put(wrong)
        writer.put(2)
    assert queue.get_many(2).tolist() == [1, 2]


def test_a_writer_waits_while_too_much_is_on_its_way() -> None:
    queue = tf.FIFOQueue(1, [tf.float32], [(100,)])
    row = np.zeros(100, np.float32)
    with queue.writer(max_ahead_bytes=row.nbytes) as writer:
        putting = started(lambda: [writer.put(row) for _ in range(5)])
        wait_until(lambda: queue.size() == 1)
        assert not putting.done()  # one is in, one is on its way, and there is no room for more
        for _ in range(5):
            queue.get()
        got(putting)
    assert writer.n_acknowledged == 5


def test_a_flush_that_takes_too_long_says_how_many_are_missing() -> None:
    queue = integers(2)
    writer = queue.writer()
    for n in range(5):
        writer.put(n)
    with pytest.raises(TimeoutError, match=r"not all in the queue after 0.1 s; \d are still"):
        writer.flush(0.1)
    assert [int(queue.get()) for _ in range(5)] == [*range(5)]
    writer.close()
    writer.close()
    assert writer.n_acknowledged == 5
    with pytest.raises(RuntimeError, match="the writer was closed"):
        writer.put(5)
    assert not writers()


def test_a_writer_that_is_dropped_sends_what_it_has_and_ends_its_thread() -> None:
    queue = integers(2)
    idle, busy = queue.writer(), queue.writer()
    for n in range(5):
        busy.put(n)
    wait_until(lambda: queue.size() == 2)
    del idle, busy
    wait_until(lambda: len(writers()) == 1)
    assert [int(queue.get()) for _ in range(5)] == [*range(5)]
    wait_until(lambda: not writers())


def test_a_writer_that_is_dropped_says_what_it_could_not_send(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = integers(1)
    writer = queue.writer()
    for n in range(3):
        writer.put(n)
    wait_until(lambda: queue.size() == 1)
    del writer
    queue.close(cancel_pending_enqueues=True)
    wait_until(lambda: not writers())
    assert "a queue writer was not closed, and lost" in caplog.text


def test_a_queue_that_is_closed_meanwhile_tells_the_writer_what_is_not_known_to_be_in() -> None:
    queue = integers()
    writer = queue.writer()
    writer.put(1)
    writer.flush(PATIENCE_S)
    queue.close()
    writer.put(2)
    for use in (lambda: writer.flush(PATIENCE_S), lambda: writer.put(3)):
        with pytest.raises(tf.errors.CancelledError, match="is closed") as caught:
            use()
        notes = [note for note in caught.value.__notes__ if "of this writer" in note]
        assert notes == ["elements of this writer that may not be in the queue: 1"]
    assert writer.n_acknowledged == 1
    with pytest.raises(tf.errors.CancelledError):
        writer.close()
    assert not writers()


def test_a_reader_gives_everything_in_order_and_ends_with_the_queue() -> None:
    queue = integers()
    queue.put_many(range(10))
    queue.close()
    with queue.reader(ahead=4) as reader:
        assert [int(n) for n in reader] == [*range(10)]
        with pytest.raises(StopIteration):
            next(reader)


def test_a_reader_gives_what_there_is_before_more_comes() -> None:
    queue = integers()
    with queue.reader() as reader:
        for n in range(5):
            queue.put(n)
            assert next(reader) == n


def test_elements_come_out_of_a_reader_in_their_structure() -> None:
    queue = tf.FIFOQueue(10, [tf.int32, tf.string], [(2,), ()], names=["n", "s"])
    queue.put({"n": [1, 2], "s": "x"})
    queue.close()
    (element,) = queue.reader()
    assert element["n"].tolist() == [1, 2]
    assert element["s"] == b"x"


def test_a_reader_that_is_closed_early_takes_no_more_and_leaves_no_thread() -> None:
    queue = integers()
    queue.put(1)
    before = threading.active_count()
    with queue.reader(ahead=2) as reader:
        assert next(reader) == 1
    reader.close()
    with pytest.raises(StopIteration):
        next(reader)
    wait_until(lambda: threading.active_count() <= before)

    def stays() -> bool:
        queue.put(2)
        return bool(queue.size() > 0)

    wait_until(stays)  # until a cluster has given up the last taking, it may still take one
    assert queue.get() == 2


def test_a_writer_and_a_reader_at_once_lose_nothing() -> None:
    queue = integers(8)

    def write() -> None:
        with queue.writer(max_ahead_bytes=64) as writer:
            for n in range(200):
                writer.put(n)
        queue.close()

    writing = started(write)
    assert [int(n) for n in queue.reader(ahead=16)] == [*range(200)]
    got(writing)
