"""`RunRecorder`: writes the log of the sessions of this process that record under one path.

What a session is about to run is in the log before it is sent, so that also the log of a killed
program has it. What the tasks did of it they note themselves (`jflow.state.journal`); the recorder
reads that again and again, for all programs that record: what tasks have noted of a killed program
is in the logs of the others.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from jflow.base import forks
from jflow.base.cluster import Task
from jflow.base.deadline import Deadline
from jflow.base.machine import ExecutionPlatform, this_platform
from jflow.base.packing import Record
from jflow.client.run_log import LogFullError, LogWriter
from jflow.client.run_log.records import VERSION, LogHeader, LogJournal
from jflow.errors import OpError
from jflow.net.protocol import MasterClient, WatchedCluster
from jflow.state.journal import JournalPosition, TaskJournal

_LOG = logging.getLogger(__name__)

_PERIOD_S = 0.25
"""How often the journals of tasks are read."""

_ANSWER_S = 2.0
"""How long a task has to answer, in seconds."""

_recorders: dict[str, RunRecorder] = {}
_opening = threading.Lock()


def recorder_of(path: str, limit_bytes: int) -> RunRecorder:
    """Returns what writes the log under a path; all sessions of a process share it.

    Args:
      path: the file.
      limit_bytes: its largest size, together with the file of its values.

    Raises:
      AlreadyExistsError: if another process has written the file.
      OSError: if it cannot be written.
    """
    path = os.path.abspath(path)
    with _opening:
        if path not in _recorders:
            _recorders[path] = RunRecorder(path, limit_bytes)
        return _recorders[path]


@forks.guarded("write", ignored=("leave",))
class RunRecorder:
    """Writes one log; thread-safe.

    Args:
      path, limit_bytes: as for `recorder_of`.

    Attributes:
      former: held while the values are read that variables had before; see `has_former`.
      has_former: whether these are in the log, since a session joined when there was none.
    """

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._path = path
        # A session may be closed by the garbage collector, wherever this thread is.
        self._lock = threading.RLock()
        self._writer: LogWriter | None = LogWriter(path, limit_bytes)
        self._clients: dict[object, MasterClient] = {}
        self._reading = threading.RLock()
        self._has_sessions = threading.Event()
        self._reason = ""
        self._positions: dict[Task, JournalPosition] = {}
        self.former = threading.Lock()
        self.has_former = False
        version: str = sys.modules["jflow"].__version__
        header = LogHeader(VERSION, secrets.token_hex(8), version, this_platform(), time.time())
        self.write(lambda _: header)
        atexit.register(self._end)
        threading.Thread(target=self._read_on, name="jflow recorder", daemon=True).start()

    @property
    def is_open(self) -> bool:
        """Whether runs can still be written."""
        return not self._reason

    def write(self, make: Callable[[LogWriter], Record]) -> bool:
        """Writes the record that `make` returns, which may write values; returns whether it did.

        Once the log is full, or cannot be written, it ends, and the run goes on.
        """
        with self._lock:
            return not self._reason and self._write(make)

    def add(self, make: Callable[[LogWriter], Record]) -> None:
        """Like `write`, but the record is written with the next one, or soon."""
        with self._lock:
            self._write(make, LogWriter.add)

    def _write(
        self,
        make: Callable[[LogWriter], Record],
        write: Callable[[LogWriter, Record], None] = LogWriter.write,
    ) -> bool:
        """Writes a record, also after the log is full. The lock must be held."""
        writer = self._writer
        if writer is None:
            return False
        try:
            write(writer, make(writer))
        except LogFullError as full:
            self._give_up(full.message)
            writer.is_limited = False  # for what tasks have noted of the runs that are in it
        except OSError as error:
            self._give_up(str(error))
            writer.close()
            self._writer = None
        else:
            return True
        return False

    def _give_up(self, reason: str) -> None:
        self._reason = reason
        _LOG.warning("the run log %s ends, and the run goes on: %s", self._path, reason)

    # Sessions -----------------------------------------------------------------------------------

    def join(self, session: object, client: MasterClient) -> None:
        """Takes the connection of a session, over which it reads the journals of tasks."""
        with self._lock:
            self._clients[session] = client
            self._has_sessions.set()

    def leave(self, session: object) -> None:
        """Reads the journals once more; with the last session, the log ends unless one joins."""
        self._read()
        with self._lock:
            self._clients.pop(session, None)
            is_last = not self._clients
            if is_last:
                self._has_sessions.clear()
        if is_last:
            self.has_former = False
            self._end()

    def use(self, tasks: Collection[Task]) -> None:
        """Notes that steps use these tasks, whose journals are read from now on."""
        with self._lock:
            for task in tasks:
                self._positions.setdefault(task, JournalPosition(task))

    # Journals -----------------------------------------------------------------------------------

    def _read_on(self) -> None:
        while self._writer is not None:
            self._has_sessions.wait()
            time.sleep(_PERIOD_S)
            is_full = bool(self._reason)
            self._read()
            self._flush()
            if is_full:
                self._close()

    def _read(self) -> None:
        """Reads the journals of all tasks to their ends, over any connection that is open."""
        with self._reading:
            with self._lock:
                clients = [client for client in self._clients.values() if client.is_open]
            for client in clients:
                try:
                    while self._read_parts(client):
                        pass
                except OpError:
                    continue
                return

    def _read_parts(self, client: MasterClient) -> bool:
        """Reads on in the journals; returns whether there was more than fits in an answer."""
        with self._lock:
            positions = [*self._positions.values()]
        if not positions:
            return False
        parts = client.call(
            WatchedCluster.read_journals, positions, _ANSWER_S, Deadline(2 * _ANSWER_S)
        )
        new = [one for one in parts if one.part.n_entries]
        for one in new:
            with self._lock:
                if not self._write(partial(_noted, one)):
                    return False
                self._positions[one.task] = one.end
        return any(one.part.n_left for one in new)

    def _flush(self) -> None:
        with self._lock:
            if self._writer is not None:
                with suppress(OSError, LogFullError):
                    self._writer.flush()

    def _end(self) -> None:
        """Writes that the log is whole, or why it ends early."""
        self._read()
        with self._lock:
            if self._writer is not None:
                self._writer.end(self._reason)

    def _close(self) -> None:
        """Closes a log that is full."""
        with self._lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.end(self._reason)
                writer.close()


def _noted(found: TaskJournal, writer: LogWriter) -> LogJournal:
    part = found.part
    return LogJournal(
        str(found.task),
        found.incarnation,
        part.first,
        part.n_entries,
        part.packed,
        writer.values(part.values),
        ExecutionPlatform.from_bytes(part.platform),
    )
