"""`FileWriter`: event files for TensorBoard, with summaries and graphs.

They are files of records, whose message is that of the package tensorboardX.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, ClassVar

from jflow.base.handles import Closing
from jflow.client.ops.summaries import WRITERS, DefaultWriter
from jflow.compiler.graph import Graph
from jflow.errors import UnimplementedError
from jflow.state.records import checked_summary, needed, scalar_value
from jflow.state.records.appended_file import AppendedFile
from jflow.state.records.graph_def import GraphDef
from jflow.state.records.tfrecord import framed

_VERSION = "brain.Event:2"
"""With this begins each file."""

_NUMBERS = itertools.count()
"""Makes the names of files differ that a process writes into one directory."""


def can_write_events() -> bool:
    """Returns whether the package is installed that writes event files."""
    return find_spec("tensorboardX") is not None


class FileWriter(Closing):
    """Writes summaries and graphs into a new event file, from any number of threads.

    On a full disk a call raises ResourceExhaustedError. What was added before is not lost, and
    later calls go on once there is room.

    Args:
      logdir: directory of the event files, which is made if it does not exist.
      graph: a graph to write, as by `add_graph`.
      flush_secs: the file is flushed when a summary is added this many seconds after the last time.
      filename_suffix: last part of the name of the file.

    Raises:
      UnimplementedError: if tensorboardX is not installed (`jflow[summaries]`), or the directory is
        not local.
      TypeError: as `add_graph`.
      OSError: if the file cannot be made.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        graph: Graph | GraphDef | None = None,
        *,
        flush_secs: float = 120,
        filename_suffix: str | None = None,
    ) -> None:
        definition = None if graph is None else _definition(graph)
        self._events = needed("tensorboardX.proto.event_pb2", "summaries", "writing summaries")
        self._logdir = os.fspath(logdir)
        if "://" in self._logdir:
            raise UnimplementedError(
                f"event files are written to a local directory only, got {self._logdir!r}"
            )
        self._flush_secs = flush_secs
        self._suffix = filename_suffix or ""
        self._lock = threading.Lock()
        self._file: AppendedFile | None = None
        self._flushed = 0.0
        self.reopen()
        if definition is not None:
            self.add_graph(definition)

    def get_logdir(self) -> str:
        """Returns the directory of the event files."""
        return self._logdir

    def add_summary(self, summary: bytes, global_step: int | None = None) -> None:
        """Writes a summary.

        Args:
          summary: serialized, the value of a tensor of `jflow.summary`.
          global_step: the step that it belongs to.

        Raises:
          InvalidArgumentError: if this is not a summary.
          RuntimeError: if the writer is closed.
        """
        event = self._event(global_step)
        event.summary.ParseFromString(checked_summary(summary))
        with self._lock:
            self._write(event)
            if time.monotonic() >= self._flushed + self._flush_secs:
                self._flush()

    def add_graph(self, graph: Graph | GraphDef, global_step: int | None = None) -> None:
        """Writes the definition of a graph, and flushes it to disk.

        Args:
          graph: a graph, or what its `as_graph_def` has returned; TensorBoard draws the last one.
          global_step: the step that it belongs to.

        Raises:
          TypeError: if this is neither.
          RuntimeError: if the writer is closed.
        """
        event = self._event(global_step)
        event.graph_def = _definition(graph).SerializeToString()
        with self._lock:
            self._write(event)
            self._flush()

    def add_scalar(self, tag: str, value: float, global_step: int | None = None) -> None:
        """Writes the summary of a number.

        Args:
          tag: the name under which TensorBoard shows it.
          value: the number.
          global_step: the step that it belongs to.

        Raises:
          RuntimeError: if the writer is closed.
        """
        self.add_summary(scalar_value(tag, value), global_step)

    @contextmanager
    def as_default(self, step: int | None = None) -> Iterator[FileWriter]:
        """A context manager in which this records the summaries of values without a graph.

        Args:
          step: the step of those that name none.
        """
        with WRITERS.pushed(DefaultWriter(self, step)):
            yield self

    def flush(self) -> None:
        """Writes to disk what was added so far. Raises RuntimeError if the writer is closed."""
        with self._lock:
            self._flush()

    def close(self) -> None:
        """Writes to disk what was added, and closes the file. May be called again."""
        with self._lock:
            if self._file is not None:
                self._flush()
                self._file.close()
                self._file = None

    def reopen(self) -> None:
        """Goes on in a new file of the directory, if it is closed."""
        with self._lock:
            if self._file is None:
                os.makedirs(self._logdir, exist_ok=True)
                # By this name TensorBoard knows the file, and the order of several.
                name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
                name += f".{os.getpid()}.{next(_NUMBERS)}{self._suffix}"
                self._file = AppendedFile(os.path.join(self._logdir, name))
                first = self._event(None)
                first.file_version = _VERSION
                self._write(first)
                self._flushed = time.monotonic()

    def _leave(self, failed: bool) -> None:
        self.close()

    def _event(self, global_step: int | None) -> Any:
        step = 0 if global_step is None else int(global_step)
        return self._events.Event(wall_time=time.time(), step=step)

    def _opened(self) -> AppendedFile:
        if self._file is None:
            raise RuntimeError(f"the writer of {self._logdir!r} is closed; call reopen()")
        return self._file

    def _write(self, event: Any) -> None:
        file = self._opened()
        file.make_room()
        file.append(framed(event.SerializeToString()))

    def _flush(self) -> None:
        self._opened().sync()
        self._flushed = time.monotonic()

    def __repr__(self) -> str:
        state = "closed" if self._file is None else "open"
        return f"<jflow.summary.FileWriter of {self._logdir!r}, {state}>"


def _definition(graph: Graph | GraphDef) -> GraphDef:
    """Returns the definition of a graph, with shapes. Raises TypeError if it is something else."""
    definition = graph.as_graph_def(add_shapes=True) if isinstance(graph, Graph) else graph
    if not isinstance(definition, GraphDef):
        raise TypeError(
            f"expected a graph or a GraphDef, got {type(graph).__name__}: {graph!r:.80}"
        )
    return definition


def create_file_writer(
    logdir: str | os.PathLike[str],
    flush_millis: float = 120_000,
    filename_suffix: str | None = None,
) -> FileWriter:
    """Returns a writer of event files, under the name and with the units of TensorFlow 2.

    Args:
      logdir: directory of the event files, which is made if it does not exist.
      flush_millis: the file is flushed when a summary is added this many milliseconds after the
        last time.
      filename_suffix: last part of the name of the file.

    Raises:
      UnimplementedError, OSError: as `FileWriter`.
    """
    return FileWriter(logdir, flush_secs=flush_millis / 1000, filename_suffix=filename_suffix)


class FileWriterCache:
    """The writers of this process, one for each directory."""

    _writers: ClassVar[dict[str, FileWriter]] = {}
    _lock = threading.Lock()

    @classmethod
    def get(cls, logdir: str | os.PathLike[str]) -> FileWriter:
        """Returns the writer of a directory; raises as `FileWriter`."""
        key = os.fspath(logdir)
        with cls._lock:
            if key not in cls._writers:
                cls._writers[key] = FileWriter(key)
            return cls._writers[key]

    @classmethod
    def clear(cls) -> None:
        """Closes all writers and forgets them."""
        with cls._lock:
            for writer in cls._writers.values():
                writer.close()
            cls._writers.clear()
