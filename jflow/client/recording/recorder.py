"""`RunRecorder`: writes the log of the sessions of this process that record under one path.

What a session is about to run is in the log before it is sent, so that also the log of a killed
program has it; closures, for which workers would wait, are written just after. What the tasks did
of it they note themselves (`jflow.state.journal`); the recorder reads that again and again, for all
programs that record: what tasks have noted of a killed program is in the logs of the others.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
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
from jflow.state.records.failures import failure

_LOG = logging.getLogger(__name__)

_PERIOD_S = 0.25
"""How often the journals of tasks are read."""

_ANSWER_S, _LAST_S = 2.0, 4.0
"""How long tasks have to answer, and all of them the last time, in seconds."""

_SILENT_S = 2.0
"""For how long a task is not asked again that did not answer, in seconds."""

_N_MORE = 8
"""How often the journals are read after the log is full, for runs that are in it."""

_recorders: dict[str, RunRecorder] = {}
_opening = threading.Lock()


def recorder_of(path: str, limit_bytes: int) -> RunRecorder:
    """Returns what writes the log under a path; all sessions of a process share it.

    Args:
      path: the file.
      limit_bytes: its largest size, together with the file of its values.

    Raises:
      AlreadyExistsError: if another process has written the file.
      ResourceExhaustedError: if the disk is full.
      OpError: if it cannot be written.
    """
    path = os.path.abspath(path)
    with _opening:
        if path not in _recorders:
            try:
                _recorders[path] = RunRecorder(path, limit_bytes)
            except OSError as error:
                raise failure(error, path, "made") from error
        return _recorders[path]


@forks.guarded("write", ignored=("add", "leave"))
class RunRecorder:
    """Writes one log; thread-safe.

    Args:
      path, limit_bytes: as for `recorder_of`.

    Attributes:
      former: held while the values are read that variables had before; see `has_former`.
      has_former: whether these are in the log, since a session joined when there was none.
    """

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._path, self._pid = path, os.getpid()
        # Reentrant, because the garbage collector may close a session in any line of any thread.
        self._lock, self._reading = threading.RLock(), threading.RLock()
        self._is_writing = False
        self._writer: LogWriter | None = LogWriter(path, limit_bytes)
        self._clients: dict[object, MasterClient] = {}
        self._has_sessions = threading.Event()
        self._reason = ""
        self._positions: dict[Task, JournalPosition] = {}
        self._silent_until: dict[Task, float] = {}
        self.former = threading.Lock()
        self.has_former = False
        version: str = sys.modules["jflow"].__version__
        header = LogHeader(VERSION, version, this_platform())
        self.write(lambda _: header)
        atexit.register(self._end)
        threading.Thread(target=self._read_on, name="jflow recorder", daemon=True).start()

    # Writing ------------------------------------------------------------------------------------

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
        if writer is None or self._is_writing:
            return False
        self._is_writing = True
        try:
            write(writer, make(writer))
        except LogFullError as full:
            self._give_up(full.message)
            writer.is_limited = False  # for what tasks have noted of the runs that are in it
        except OSError as error:
            self._give_up(str(error))
            self._close()
        else:
            return True
        finally:
            self._is_writing = False
        return False

    def _give_up(self, reason: str) -> None:
        self._reason = reason
        _LOG.warning("the run log %s ends, and the run goes on: %s", self._path, reason)

    def _close(self, unread: Iterable[Task] = ()) -> None:
        """Ends a log to which nothing more can be added. The lock must be held."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.end(self._reason, map(str, unread))
            writer.close()

    # Sessions -----------------------------------------------------------------------------------

    def join(self, session: object, client: MasterClient) -> None:
        """Takes the connection of a session, over which it reads the journals of tasks."""
        with self._lock:
            self._clients[session] = client
            self._has_sessions.set()

    def leave(self, session: object) -> None:
        """Ends the recording of a session, whose connection must still be open.

        With the last session the journals are read to their ends, for up to `_LAST_S`, and the log
        ends unless another one joins.
        """
        with self._lock:
            # The garbage collector may close it while this thread writes; then nothing is read.
            is_last = [*self._clients] == [session] and not self._is_writing
        if is_last:
            self._end()
        with self._lock:
            self._clients.pop(session, None)
            if not self._clients:
                self._has_sessions.clear()
                self.has_former = False

    def use(self, tasks: Collection[Task]) -> None:
        """Notes that steps use these tasks, whose journals are read from now on."""
        with self._lock:
            for task in tasks:
                self._positions.setdefault(task, JournalPosition(task))

    # Journals -----------------------------------------------------------------------------------

    def _read_on(self) -> None:
        n_more = _N_MORE
        while self._writer is not None and n_more:
            self._has_sessions.wait()
            time.sleep(_PERIOD_S)
            n_more -= bool(self._reason)
            unread = self._read(Deadline(_ANSWER_S))
            with self._lock:
                if not n_more:
                    self._close(unread)
                elif self._writer is not None:
                    with suppress(OSError, LogFullError):
                        self._writer.flush()

    def _read(self, limit: Deadline, *, every: bool = False) -> Collection[Task]:
        """Reads the journals of tasks to their ends, over any connection that is open.

        Args:
          limit: how long it may take.
          every: whether tasks are asked, too, that did not answer a moment ago.

        Returns:
          The tasks that did not answer.
        """
        with self._reading:
            with self._lock:
                clients = [client for client in self._clients.values() if client.is_open]
                now = time.monotonic()
                tasks = {*self._positions}
            left = {one for one in tasks if every or self._silent_until.get(one, now) <= now}
            skipped, unread = tasks - left, set[Task]()
            for client in clients:
                try:
                    while left and limit.remaining() != 0:
                        left, silent = self._read_parts(client, left, limit)
                        unread |= silent
                except OpError:
                    continue
                break
            unread |= left
            self._silent_until.update(dict.fromkeys(unread, time.monotonic() + _SILENT_S))
        return unread | skipped

    def _read_parts(
        self, client: MasterClient, tasks: Collection[Task], limit: Deadline
    ) -> tuple[set[Task], set[Task]]:
        """Reads on in the journals of tasks; returns those with more, and those without answer."""
        with self._lock:
            positions = [self._positions[task] for task in sorted(tasks)]
        seconds = min(_ANSWER_S, limit.remaining() or _ANSWER_S)
        found = client.call(WatchedCluster.read_journals, positions, seconds, limit)
        with self._lock:
            for one in found:
                self._silent_until.pop(one.task, None)
                if one.part.n_entries and not self._write(partial(_noted, one)):
                    return set(), set()
                self._positions[one.task] = one.end
        silent = {*tasks} - {one.task for one in found}
        return {one.task for one in found if one.part.n_left}, silent

    def _end(self) -> None:
        """Reads the journals to their ends, and writes that the log is whole, or what it lacks."""
        if os.getpid() != self._pid or not self._clients:
            return  # it is a child of the program, which ends, or that is written
        unread = self._read(Deadline(_LAST_S), every=True)
        with self._lock:
            if self._writer is not None:
                self._writer.end(self._reason, map(str, sorted(unread)))


def _noted(found: TaskJournal, writer: LogWriter) -> LogJournal:
    part = found.part
    return LogJournal(
        str(found.task),
        found.incarnation,
        part.first,
        part.packed,
        writer.values(part.values),
        ExecutionPlatform.from_bytes(part.platform),
    )
