"""Snapshots of readers: any position in a file, and what steps do meanwhile."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from jflow.base.values import TensorSpec
from jflow.errors import CancelledError, InvalidArgumentError, NotFoundError, OutOfRangeError
from jflow.state.records import TFRecordWriter, open_records
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources import Cell
from jflow.state.resources.queue import Close, Enqueue
from jflow.state.resources.reader import ReaderSpec, ReaderState
from jflow.state.resources.reader.kernels import KERNELS
from tests.state.resources.queues import make

WORDS = [b"one", b"", b"three", b"four" * 9, b"five"]
ANYWHERE = AllowedDirectories.anywhere()


OPEN = []
"""Readers whose files the end of a test closes."""


@pytest.fixture(autouse=True, scope="module")
def _closed_at_the_end():
    yield
    while OPEN:
        OPEN.pop().close()


class Reading:
    """A reader and its queue of work items, as steps use them."""

    def __init__(self, spec):
        OPEN.append(self)
        self.spec = spec
        self.reader = Cell(ReaderState(spec, "r", self.open), "")
        self.queue = Cell(make(components=(TensorSpec((), "string"),)), "")
        self.opened = []

    def open(self, work, position):
        self.opened.append((work, position))
        return open_records(self.spec.kind, work, self.spec.options, ANYWHERE, position)

    def put(self, *names):
        for name in names:
            assert self.queue.submit(Enqueue((np.array(name, object),)), print)

    def start(self, kernel="read", values=(), **attributes):
        cells = [self.reader, self.queue] if kernel.startswith("read") else [self.reader]
        return KERNELS[f"reader.{kernel}"](cells, values, **attributes)

    def run(self, *args, **attributes):
        """What a kernel returns, which must not have to wait."""
        return finish(self.start(*args, **attributes))

    def read(self):
        return self.run()[1].item()

    def rest(self):
        """All values that are left."""
        self.queue.submit(Close(), print)
        values = []
        while True:
            try:
                values.append(self.read())
            except OutOfRangeError:
                return values

    def close(self):
        """Closes the file that is open."""
        self.reader.close(CancelledError("closed"))


def finish(kernel):
    try:
        while True:
            cell, attempt = next(kernel)
            assert cell.submit(attempt, print), "it waits"
    except StopIteration as stop:
        return stop.value


def waiting(kernel):
    """Runs a kernel until it waits; the attempt."""
    while True:
        cell, attempt = next(kernel)
        if not cell.submit(attempt, lambda _: None):
            return attempt


def restored(reading, snapshot=None):
    other = Reading(reading.spec)
    other.reader.restore(reading.reader.snapshot() if snapshot is None else snapshot)
    return other


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind with the same records, by the specs of the readers."""
    folder = tmp_path_factory.mktemp("records")
    lines = folder / "lines"
    lines.write_bytes(b"header\n" + b"".join(word + b"\n" for word in WORDS))
    fixed, packed = folder / "fixed", folder / "packed"
    fixed.write_bytes(b"".join(b"%8d" % i for i in range(5)))
    packed.write_bytes(zlib.compress(fixed.read_bytes()))
    found = {
        "text": (ReaderSpec("TextLineReader", {"skip_header_lines": 1}), lines),
        "fixed": (ReaderSpec("FixedLengthRecordReader", {"record_bytes": 8}), fixed),
        "zlib": (
            ReaderSpec("FixedLengthRecordReader", {"record_bytes": 8, "encoding": "ZLIB"}),
            packed,
        ),
        "whole": (ReaderSpec("WholeFileReader"), fixed),
        "identity": (ReaderSpec("IdentityReader"), fixed),
    }
    for compression in ("", "GZIP"):
        path = folder / f"tfrecords{compression}"
        with TFRecordWriter(path, compression) as writer:
            for word in WORDS:
                writer.write(word)
        spec = ReaderSpec("TFRecordReader", {"compression": compression})
        found[f"tfrecords {compression}"] = (spec, path)
    return {name: (spec, str(path).encode()) for name, (spec, path) in found.items()}


KINDS_OF_FILES = ["text", "fixed", "zlib", "whole", "identity", "tfrecords ", "tfrecords GZIP"]


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
@given(counts=st.lists(st.integers(1, 4), max_size=6))
def test_a_restored_reader_goes_on_at_the_same_record(files, kind, counts):
    spec, path = files[kind]
    reading = Reading(spec)
    reading.put(path, path, path)
    for count in counts:
        if reading.queue.query(lambda queue: queue.size):
            reading.run("read_up_to", count=count)
    snapshot = reading.reader.snapshot()
    other = restored(reading)
    other.queue.restore(reading.queue.snapshot())
    assert other.opened == [], "a restore opens no file"
    assert other.reader.query(counts_of) == reading.reader.query(counts_of)
    assert other.rest() == reading.rest()
    assert other.reader.query(counts_of) == reading.reader.query(counts_of)
    assert restored(other, snapshot).reader.snapshot() == snapshot


def counts_of(reader):
    return reader.n_records, reader.n_work_units


def test_a_snapshot_has_the_position_and_counts(files):
    spec, path = files["text"]
    reading = Reading(spec)
    empty = reading.reader.snapshot()
    assert (empty.work, empty.position, empty.n_records) == (None, None, 0)
    reading.put(path)
    reading.run("read_up_to", count=2)
    snapshot = reading.reader.snapshot()
    assert (snapshot.work, snapshot.n_records, snapshot.n_work_units) == (path, 2, 0)
    assert snapshot.position == (len(b"header\none\n\n"), 3)
    reading.rest()
    assert snapshot.position == (len(b"header\none\n\n"), 3)
    reading.reader.restore(empty)
    assert reading.reader.query(counts_of) == (0, 0)


def test_a_record_that_is_being_read_counts_as_not_read(files, monkeypatch):
    spec, path = files["text"]
    reading = Reading(spec)
    reading.put(path)
    reading.read()
    during = []
    original = ReaderState.read

    def read(*args):
        found = original(*args)
        during.append(reading.reader.snapshot())
        return found

    monkeypatch.setattr(ReaderState, "read", read)
    assert reading.read() == b""
    assert during[0].n_records == 1
    assert restored(reading, during[0]).rest() == WORDS[1:]


def test_a_restore_during_a_read_counts_as_after_it_and_closes_its_file_later(files, monkeypatch):
    spec, path = files["text"]
    reading = Reading(spec)
    start = reading.reader.snapshot()
    reading.put(path)
    reading.read()
    earlier = reading.reader.snapshot()
    reading.read()
    item = reading.reader.query(lambda reader: reader.work)
    original = ReaderState.read
    with monkeypatch.context() as patch:

        def read(*args):
            reading.reader.restore(start)
            reading.reader.restore(earlier)
            assert not item.records._stream._source.file.closed
            return original(*args)

        patch.setattr(ReaderState, "read", read)
        assert reading.read() == b"three"
    assert item.records._stream._source.file.closed
    assert reading.reader.query(counts_of) == (1, 0)
    assert reading.rest() == WORDS[1:]


def test_a_read_that_waits_for_work_uses_what_a_restore_brings_and_leaves_the_queue_alone(files):
    spec, path = files["text"]
    reading, begun = Reading(spec), Reading(spec)
    begun.put(path)
    begun.read()
    kernel = reading.start()
    waiting(kernel)
    reading.reader.restore(begun.reader.snapshot())
    reading.put(path)
    assert finish(kernel)[1].item() == b""
    assert reading.queue.query(lambda queue: queue.size) == 1
    assert reading.rest() == WORDS[2:] + WORDS


def test_a_read_that_waits_for_work_of_a_queue_that_closes_uses_what_a_restore_brought(files):
    spec, path = files["text"]
    reading, begun = Reading(spec), Reading(spec)
    begun.put(path)
    begun.read()
    kernel = reading.start()
    waiting(kernel)
    reading.reader.restore(begun.reader.snapshot())
    reading.queue.submit(Close(), print)
    assert finish(kernel)[1].item() == b""


def test_reads_that_wait_for_each_other_go_on_after_a_restore(files):
    spec, path = files["text"]
    reading = Reading(spec)
    first, second = reading.start(), reading.start()
    waiting(first)
    acquire = waiting(second)
    reading.reader.restore(Reading(spec).reader.snapshot())
    reading.put(path)
    assert finish(first)[1].item() == WORDS[0]
    assert acquire.is_complete
    assert finish(second)[1].item() == WORDS[1]


def test_a_file_that_is_gone_fails_the_next_read_and_no_later_one(files):
    spec, path = files["text"]
    reading = Reading(spec)
    snapshot = structs.replace(reading.reader.snapshot(), work=b"/no/such/file", position=(3, 1))
    reading.reader.restore(snapshot)
    reading.put(path)
    with pytest.raises(NotFoundError, match="/no/such/file"):
        reading.read()
    assert reading.read() == WORDS[0]
    assert reading.reader.query(counts_of) == (1, 0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ReaderSpec("TFRecordReader"), "kind TextLineReader.*kind TFRecordReader"),
        (ReaderSpec("TextLineReader", {"skip_header_lines": 2}), "options.*skip_header_lines': 2"),
    ],
    ids=str,
)
def test_a_snapshot_of_another_reader_is_refused(files, spec, message):
    reading = Reading(files["text"][0])
    with pytest.raises(InvalidArgumentError, match=f"cannot restore TextLineReader 'r'.*{message}"):
        reading.reader.restore(Reading(spec).reader.snapshot())


def test_counts_that_are_none_are_refused(files):
    reading = Reading(files["text"][0])
    snapshot = structs.replace(reading.reader.snapshot(), n_records=-1)
    with pytest.raises(InvalidArgumentError, match="-1 records"):
        reading.reader.restore(snapshot)
