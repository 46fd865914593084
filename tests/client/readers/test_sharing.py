"""Sharing of readers: by which sessions, and what happens to waiting attempts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import jflow as tf
from tests.client.queues.helpers import SHORT, got, session, started, wait_until
from tests.client.readers.helpers import Driver, files, lines
from tests.clusters import Backend

N_THREADS = 8


def test_sessions_have_readers_of_their_own_and_each_file_goes_to_one(
    cluster: Backend, directory: Path
) -> None:
    work = [lines(directory, name, f"{name}1", f"{name}2") for name in "abcd"]
    reader, queue = tf.TextLineReader(), files(shared_name="files")
    with session(cluster) as one, session(cluster, 1) as other:
        drivers = [Driver(sess, reader, queue) for sess in (one, other)]
        drivers[0].give(*work)
        drivers[0].close()
        found = [driver.values(1)[0] for _ in range(4) for driver in drivers]
        assert found == [b"a1", b"b1", b"a2", b"b2", b"c1", b"d1", b"c2", b"d2"]
        assert [driver.counts for driver in drivers] == [(4, 1), (4, 1)]


def test_a_reader_with_a_shared_name_goes_on_in_another_session(
    cluster: Backend, directory: Path
) -> None:
    work = lines(directory, "a", *"123")

    with tf.Graph().as_default(), session(cluster) as sess:
        reader = tf.TextLineReader(shared_name="reader")
        first = Driver(sess, reader, files(shared_name="files"))
        first.give(work)
        assert first.values(1) == [b"1"]
    with tf.Graph().as_default(), session(cluster, 1) as sess:
        reader = tf.TextLineReader(shared_name="reader")
        later = Driver(sess, reader, files(shared_name="files"))
        assert later.values(2) == [b"2", b"3"]
        assert later.counts == (3, 0)


def test_sharing_another_kind_of_reader_is_refused(cluster: Backend) -> None:
    one = tf.TextLineReader(shared_name="reader")
    other = tf.TextLineReader(skip_header_lines=1, shared_name="reader")
    with session(cluster) as sess:
        sess.run(one.num_records_produced())
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"reader 'reader' has a different definition.*skip_header_lines': 1.*found",
        ):
            sess.run(other.num_records_produced())


def test_many_threads_lose_and_repeat_nothing(backend: Backend, directory: Path) -> None:
    work = [lines(directory, f"f{n}", *(f"{n}-{i}" for i in range(20))) for n in range(6)]
    with session(backend) as sess:
        driver = Driver(sess, tf.TextLineReader())
        driver.give(*work)
        driver.close()

        def drain(_: int) -> list[bytes]:
            found = []
            try:
                while True:
                    found += driver.values(1)
            except tf.errors.OutOfRangeError:
                return found

        with ThreadPoolExecutor(N_THREADS) as threads:
            found = [value for part in threads.map(drain, range(N_THREADS)) for value in part]
        assert sorted(found) == sorted(f"{n}-{i}".encode() for n in range(6) for i in range(20))
        assert driver.counts == (120, 6)


def test_a_read_that_gives_up_waiting_for_work_gives_back_its_turn(backend: Backend) -> None:
    with session(backend) as sess:
        driver = Driver(sess, tf.IdentityReader())
        for _ in range(3):
            with pytest.raises(tf.errors.DeadlineExceededError):
                sess.run(driver.record, options=SHORT)
        waiting = started(driver.read)
        with pytest.raises(tf.errors.DeadlineExceededError):  # for its turn
            sess.run(driver.record, options=SHORT)
        driver.give("a", "b")
        assert got(waiting) == [(b"a", b"a")]
        assert driver.values(1) == [b"b"]
        assert driver.counts == (2, 1)


def test_a_session_that_is_closed_while_it_reads_gives_back_its_turn(cluster: Backend) -> None:
    reader, queue = tf.IdentityReader(shared_name="reader"), files(shared_name="files")
    with session(cluster) as sess:
        driver = Driver(sess, reader, queue)
        other = session(cluster, 1)
        waiting = started(lambda: other.run(driver.record))
        behind = started(driver.read)
        # This one gets nothing only while another session has the turn or waits for it.
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(driver.record, options=SHORT)
        other.close()
        with pytest.raises(tf.errors.CancelledError):
            got(waiting)
        driver.give("a", "b")
        assert got(behind) == [(b"a", b"a")]
        assert driver.values(1) == [b"b"]


def test_a_reset_ends_reads_that_wait(cluster: Backend) -> None:
    with tf.container("other"):
        reader, queue = tf.IdentityReader(shared_name="reader"), files(shared_name="files")
    with session(cluster) as sess:
        driver = Driver(sess, reader, queue)
        driver.give("a")
        driver.read()
        waiting = [started(lambda: sess.run(driver.record)) for _ in range(2)]
        wait_until(lambda: driver.counts == (1, 1))  # one of them has found the end
        with session(cluster, 1):
            cluster.reset("other")
        for read in waiting:
            with pytest.raises((tf.errors.CancelledError, tf.errors.AbortedError)):
                got(read)
    with session(cluster) as sess:
        later = Driver(sess, reader, queue)
        later.give("b")
        assert later.values(1) == [b"b"]
        assert later.counts == (1, 0)
