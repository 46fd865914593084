"""What the tests of readers have in common: files, and a reader with the steps that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import jflow as tf
from tests.clusters import BACKENDS, Backend


@contextmanager
def reading(name: str, directory: Path) -> Iterator[Backend]:
    """A backend whose servers may read the files below a directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JFLOW_DATA_ROOTS", str(directory))
        with BACKENDS[name]() as backend:
            yield backend


def files(names: tf.FIFOQueue | None = None, **options: str) -> tf.FIFOQueue:
    """A queue of work."""
    return names or tf.FIFOQueue(100, [tf.string], [()], **options)


def lines(directory: Path, name: str, *texts: str) -> str:
    """The path of a new file of lines."""
    path = directory / name
    path.write_text("".join(f"{text}\n" for text in texts))
    return str(path)


class Driver:
    """A reader, its queue and the steps that tests use most, made once."""

    def __init__(
        self, session: tf.Session, reader: tf.ReaderBase, queue: tf.FIFOQueue | None = None
    ) -> None:
        self.session = session
        self.reader = reader
        self.queue = files(queue)
        self.record = reader.read(self.queue)
        self._work = tf.placeholder(tf.string, (None,))
        self._enqueue = self.queue.enqueue_many(self._work)
        self._size = self.queue.size()
        self._counts = [reader.num_records_produced(), reader.num_work_units_completed()]

    def give(self, *work: str | bytes) -> None:
        """Enqueues work items."""
        self.session.run(self._enqueue, {self._work: list(work)})

    def close(self) -> None:
        """Closes the queue of work items."""
        self.session.run(self.queue.close())

    def read(self, n: int = 1) -> list[tuple[bytes, bytes]]:
        """Keys and values of the next records."""
        return [tuple(self.session.run(self.record)) for _ in range(n)]

    def values(self, n: int) -> list[bytes]:
        return [value for _, value in self.read(n)]

    @property
    def size(self) -> int:
        """The number of work items in the queue."""
        return int(self.session.run(self._size))

    @property
    def counts(self) -> tuple[int, int]:
        """The number of records read, and the number of work items read to their end."""
        records, units = self.session.run(self._counts)
        assert records.dtype == units.dtype == "int64"
        return int(records), int(units)
