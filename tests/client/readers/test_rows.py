"""The common rules of readers, row by row: work, records, counts, states and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import jflow as tf
from jflow.state.records import TFRecordWriter
from tests.client.queues.helpers import SHORT, session
from tests.client.readers.helpers import Driver, files, lines
from tests.clusters import Backend


def test_work_is_taken_only_when_none_is_in_progress(backend: Backend, directory: Path) -> None:
    work = [lines(directory, "a", "1", "2"), lines(directory, "b", "3")]
    with session(backend) as sess:
        driver = Driver(sess, tf.TextLineReader())
        driver.give(*work)
        found = []
        for left in (1, 1, 0):
            found += driver.read()
            assert driver.size == left
    keys = [f"{work[0]}:1", f"{work[0]}:2", f"{work[1]}:1"]
    assert found == [(key.encode(), b"%d" % n) for n, key in enumerate(keys, 1)]


def test_files_that_are_exhausted_or_empty_are_passed_over(
    backend: Backend, directory: Path
) -> None:
    empty = lines(directory, "empty")
    with session(backend) as sess:
        driver = Driver(sess, tf.TextLineReader())
        driver.give(empty, empty, lines(directory, "a", "1"), empty, lines(directory, "b", "2"))
        assert driver.values(2) == [b"1", b"2"]
        assert driver.counts == (2, 4)


def test_at_the_end_the_queue_says_that_there_is_no_more(backend: Backend, directory: Path) -> None:
    with session(backend) as sess:
        driver = Driver(sess, tf.TextLineReader(name="reader"))
        driver.give(lines(directory, "a", "1"))
        driver.close()
        assert driver.values(1) == [b"1"]
        for _ in range(2):
            with pytest.raises(
                tf.errors.OutOfRangeError,
                match=r"FIFOQueue '.*' is closed and has insufficient elements .*requested 1, "
                r"current size 0.*'reader_Read' was made at .*helpers.py",
            ):
                driver.read()
        assert driver.counts == (1, 1)


def test_an_item_is_complete_when_the_next_read_finds_its_end(
    backend: Backend, directory: Path
) -> None:
    with session(backend) as sess:
        driver = Driver(sess, tf.TextLineReader())
        driver.give(lines(directory, "a", "1", "2"))
        seen = [driver.counts]
        for _ in range(2):
            driver.read()
            seen.append(driver.counts)
        driver.close()
        with pytest.raises(tf.errors.OutOfRangeError):
            driver.read()
        assert [*seen, driver.counts] == [(0, 0), (1, 0), (2, 0), (2, 1)]


def test_a_missing_file_uses_its_item_up(backend: Backend, directory: Path) -> None:
    with session(backend) as sess:
        driver = Driver(sess, tf.TextLineReader(name="reader"))
        driver.give(str(directory / "missing"), lines(directory, "a", "1"))
        with pytest.raises(tf.errors.NotFoundError, match=r"missing' cannot be opened") as caught:
            driver.read()
        assert caught.value.op == "reader_Read"
        assert "helpers.py" in str(caught.value)
        assert driver.size == 1
        assert driver.values(1) == [b"1"]


def test_a_damaged_file_is_left_with_an_error_that_says_where(
    backend: Backend, directory: Path
) -> None:
    path = directory / "records"
    with TFRecordWriter(str(path)) as writer:
        for _ in range(3):
            writer.write(b"x" * 10)
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with session(backend) as sess:
        driver = Driver(sess, tf.TFRecordReader(name="records"))
        driver.give(str(path), str(path))
        for n in range(2):
            assert driver.read() == [(f"{path}:0".encode(), b"x" * 10)]
            with pytest.raises(tf.errors.DataLossError) as caught:
                driver.read()
            assert caught.value.op == "records_Read"
            for part in (f"offset 26 of {path}", "'records_Read' was made at", "helpers.py"):
                assert part in str(caught.value)
            assert driver.counts == (n + 1, n + 1)


def test_read_up_to_never_goes_over_the_end_of_an_item(backend: Backend, directory: Path) -> None:
    work = [lines(directory, "a", *"12345"), lines(directory, "e"), lines(directory, "b", *"67")]
    n = tf.placeholder(tf.int32, ())
    with session(backend) as sess:
        driver = Driver(sess, tf.TextLineReader())
        up_to = driver.reader.read_up_to(driver.queue, n)
        two = driver.reader.read_up_to(driver.queue, 2)
        driver.give(*work)
        driver.close()
        batches = [sess.run(up_to, {n: 3}), sess.run(two[1]), sess.run(up_to, {n: 100})]
        assert batches[0][0].tolist() == [f"{work[0]}:{i}".encode() for i in (1, 2, 3)]
        assert batches[0][1].tolist() == [b"1", b"2", b"3"]
        assert batches[1].tolist() == [b"4", b"5"]
        assert batches[2][1].tolist() == [b"6", b"7"]
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(two)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"positive number.* got 0"):
            sess.run(up_to, {n: 0})


def test_reset_forgets_the_item_and_the_counts_and_leaves_the_queue(
    backend: Backend, directory: Path
) -> None:
    with session(backend) as sess:
        driver = Driver(sess, tf.TextLineReader())
        driver.give(lines(directory, "a", *"123"), lines(directory, "b", *"45"))
        driver.read()
        sess.run(driver.reader.reset())
        assert (driver.counts, driver.size) == ((0, 0), 1)
        assert driver.values(1) == [b"4"]


@pytest.mark.parametrize("kind", [tf.IdentityReader, tf.WholeFileReader])
def test_a_state_is_where_reading_goes_on(
    backend: Backend, directory: Path, kind: type[tf.ReaderBase]
) -> None:
    work = [lines(directory, name, name) for name in "abc"]
    state = tf.placeholder(tf.string, ())
    with session(backend) as sess:
        driver = Driver(sess, kind())
        restoring, serialize = driver.reader.restore_state(state), driver.reader.serialize_state()
        at_first = sess.run(serialize)
        driver.give(*work)
        first = driver.read(2)
        inside = sess.run(serialize)
        second = driver.read()
        sess.run(restoring, {state: inside})
        assert driver.counts == (2, 1)
        driver.give(work[2])
        assert driver.read() == second
        assert driver.counts == (3, 2)
        assert len({*first, *second}) == 3
        sess.run(restoring, {state: at_first})
        assert driver.counts == (0, 0)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff",
        b"[1]",
        b'["TextLineReader", null, null, 0, 0]',
        b'["IdentityReader", 5, null, 1, 0]',
        b'["IdentityReader", null, null, 1e400, 0]',
        b'["IdentityReader", null, null, 0, true]',
        b'["IdentityReader", null, null, %d, 0]' % 2**63,
        b'["IdentityReader", null, null, -1, 0]',
    ],
)
def test_what_is_no_state_resets_the_reader(backend: Backend, garbage: bytes) -> None:
    state = tf.placeholder(tf.string, ())
    with session(backend) as sess:
        driver = Driver(sess, tf.IdentityReader())
        driver.give("a", "b")
        driver.read()
        with pytest.raises(tf.errors.InvalidArgumentError, match="the given state is not valid"):
            sess.run(driver.reader.restore_state(state), {state: garbage})
        assert driver.counts == (0, 0)
        assert driver.values(1) == [b"b"]


def test_readers_of_files_with_an_inside_have_no_state_to_take(backend: Backend) -> None:
    reader = tf.TextLineReader()
    with session(backend) as sess:
        for step in (reader.serialize_state(), reader.restore_state("")):
            with pytest.raises(tf.errors.UnimplementedError, match="TextLineReader"):
                sess.run(step)


def test_work_is_single_strings(backend: Backend) -> None:
    reader = tf.IdentityReader()
    for queue in (
        tf.FIFOQueue(1, [tf.int32], [()]),
        tf.FIFOQueue(1, [tf.string, tf.string], [(), ()]),
        tf.FIFOQueue(1, [tf.string], [(2,)]),
    ):
        with pytest.raises(ValueError, match="a queue of single strings"):
            reader.read(queue)
    with pytest.raises(TypeError, match="takes its work from a queue"):
        reader.read(["a"])
    queue = tf.FIFOQueue(2, [tf.string])
    with session(backend) as sess:
        sess.run(queue.enqueue(["a", "b"]))
        sess.run(queue.enqueue("c"))
        key, _ = reader.read(queue)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"work item, got shape \(2,\)"):
            sess.run(key)
        assert sess.run(key) == b"c"


@pytest.mark.parametrize("count", [2.5, True, "3", None])
def test_how_many_to_read_is_an_integer(count: object) -> None:
    with pytest.raises(TypeError, match="how many records to read must be an integer"):
        tf.IdentityReader().read_up_to(files(), count)


def test_how_many_to_read_may_be_a_tensor_of_one_integer() -> None:
    for tensor in (tf.constant([1, 2]), tf.constant(1.5), tf.constant("1")):
        with pytest.raises(TypeError, match="integer scalar"):
            tf.IdentityReader().read_up_to(files(), tensor)
    with pytest.raises(ValueError, match="positive number"):
        tf.IdentityReader().read_up_to(files(), 0)


def test_a_read_that_times_out_takes_nothing(backend: Backend) -> None:
    with session(backend) as sess:
        driver = Driver(sess, tf.IdentityReader())
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(driver.record, options=SHORT)
        driver.give("a")
        assert driver.values(1) == [b"a"]


def test_servers_read_below_their_roots_only(cluster: Backend, directory: Path) -> None:
    with session(cluster) as sess:
        driver = Driver(sess, tf.WholeFileReader(name="whole"))
        driver.give("/etc/passwd", str(directory / ".." / ".." / "x"), lines(directory, "a", "1"))
        for reason in ("it is outside the data roots", "contains '..'"):
            with pytest.raises(tf.errors.PermissionDeniedError, match=reason) as caught:
                driver.read()
            assert caught.value.op == "whole_Read"
            assert str(directory.parent) in str(caught.value)
        assert driver.values(1) == [b"1\n"]


def test_a_reader_is_restored_from_a_single_string() -> None:
    reader = tf.IdentityReader(name="reader")
    for state in (["a", "b"], tf.constant(["a"]), tf.placeholder(tf.string, (None,))):
        with pytest.raises((ValueError, TypeError), match="'reader'"):
            reader.restore_state(state)
    assert reader.restore_state(tf.placeholder(tf.string)) is not None
