"""`ServedTask`: the status of a server's task and process, for watchers."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jflow.base.deadline.clock import now
from jflow.net.protocol import ServerInfo
from jflow.state.resources.watching import VariableLister, list_containers, list_queues
from jflow.state.watch import StatusRequest, TaskStatus, ThreadStatus
from jflow.task.master import Master
from jflow.task.worker import Worker

_N_FRAMES = 64
"""How many frames of a thread are reported: the innermost ones."""
_ANSWER_S = 0.2
"""How long a server that was told to stop goes on, in seconds, so that its reply leaves."""

_Listed = tuple[int, tuple[Any, ...]]


class ServedTask:
    """The task of a server, as watchers see it; see `WatchedTask`. On the event loop only.

    Args:
      info: gives the current server info.
      worker, master: the worker and the master of the task.

    Attributes:
      is_serving: whether the server is not about to stop.
      stopping: stops the server; called on a thread of its own. None while it starts.
      coordinators: see `WatchedTask.coordinators`.
    """

    def __init__(self, info: Callable[[], ServerInfo], worker: Worker, master: Master) -> None:
        self.is_serving = True
        self.stopping: Callable[[], object] | None = None
        self._info = info
        self._worker = worker
        self.coordinators = master.coordinators
        self._started = now()
        containers, variables = worker.containers, VariableLister()
        self._listers: Mapping[str, Callable[[StatusRequest], _Listed]] = {
            "containers": lambda request: list_containers(containers, request),
            "devices": self._list_devices,
            "queues": lambda request: list_queues(containers, request),
            "sessions": master.list_sessions,
            "steps": worker.running.listed,
            "threads": list_threads,
            "usage": worker.usage.listed,
            "variables": lambda request: variables.list(containers, request),
            "pending": worker.running.list_waits,
        }

    def inspect(self, request: StatusRequest) -> TaskStatus:
        """See `WatchedTask.inspect`."""
        info, (log, log_inode) = self._info(), log_file()
        listed = {kind: self._listers[kind](request) for kind in request.kinds}
        items: dict[str, Any] = {kind: found for kind, (_, found) in listed.items()}
        return TaskStatus(
            task=str(info.task),
            address=info.cluster.task_address(info.task.job, info.task.index),
            incarnation=info.incarnation,
            version=sys.modules["jflow"].__version__,
            pid=os.getpid(),
            uptime_s=max(now() - self._started, 0.0),
            memory_bytes=memory_bytes(),
            cpu_s=time.process_time(),
            n_begun=self._worker.running.n_begun,
            n_compiled=info.n_compiled,
            log=log,
            log_inode=log_inode,
            totals={kind: total for kind, (total, _) in listed.items()},
            **items,
        )

    def stop(self) -> None:
        """See `WatchedTask.stop`."""
        self.is_serving = False
        asyncio.get_running_loop().call_later(_ANSWER_S, self._stop)

    def _stop(self) -> None:
        if self.stopping is not None:
            threading.Thread(target=self.stopping, name="jflow stops", daemon=True).start()

    def _list_devices(self, request: StatusRequest) -> _Listed:
        devices = self._info().devices
        page = devices[request.first : request.first + request.limit]
        return len(devices), tuple(
            self._worker.running.device_status(one.device, one.memory_limit_bytes) for one in page
        )


def memory_bytes() -> int:
    """Returns the resident memory of this process, in bytes; 0 if the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def log_file() -> tuple[str, int]:
    """Returns path and inode of the file that is standard error; "" and 0 if it is no file."""
    try:
        status = os.fstat(2)
        path = os.readlink("/proc/self/fd/2") if stat.S_ISREG(status.st_mode) else ""
    except OSError:  # it is closed, or the system does not tell
        return "", 0
    return (path, status.st_ino) if path else ("", 0)


def list_threads(request: StatusRequest) -> _Listed:
    """Returns the number of Python threads, and the stacks of a page of them."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sorted(sys._current_frames().items())
    page = frames[request.first : request.first + request.limit]
    return len(frames), tuple(
        ThreadStatus(
            names.get(number, f"thread {number}"),
            tuple(
                f"{frame.f_code.co_filename}:{line} {frame.f_code.co_qualname}"
                for frame, line in [*traceback.walk_stack(innermost)][:_N_FRAMES][::-1]
            ),
        )
        for number, innermost in page
    )
