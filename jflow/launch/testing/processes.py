"""`ProcessCluster`: a cluster whose tasks a test can kill, pause, resume and restart.

Its processes are forked from a zygote, which this process starts once and keeps until it ends.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from jflow.base.cluster import Task
from jflow.base.failpoints.actions import FailpointAction
from jflow.errors import UnavailableError
from jflow.launch.cluster import StartedCluster, said
from jflow.launch.testing.failpoints import failpoints
from jflow.launch.testing.programs import ProgramProcess
from jflow.launch.zygote import Zygote

CHILD = "jflow.launch.child"
"""The program of a task, which imports what all programs with jflow need."""

_READ_AT_IMPORT = (
    *("CUDA_", "GLIBC_", "GRPC_", "JAX_", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "PYTHON"),
    *("TF_CPP_", "XLA_"),
)
"""Prefixes of the environment variables that libraries read when they are imported."""

_zygotes: dict[object, Zygote] = {}
_lock = threading.Lock()


def shared_zygote() -> Zygote:
    """Returns the zygote shared by this process, which must not be closed; starts it at first use.

    A program must not see what another one would have read at its start. So there is one for each
    working directory and environment of libraries that this process has had.
    """
    variables = sorted(item for item in os.environ.items() if item[0].startswith(_READ_AT_IMPORT))
    key = (os.getpid(), os.getcwd(), tuple(variables))
    with _lock:
        zygote = _zygotes.get(key)
        if zygote is None or zygote.has_ended:
            zygote = _zygotes[key] = Zygote([CHILD])
            atexit.register(zygote.close)
        return zygote


def shared_pids() -> set[int]:
    """Returns the process ids of the shared zygotes."""
    with _lock:
        return {zygote.pid for zygote in _zygotes.values()}


class ProcessCluster(StartedCluster):
    """A cluster of server processes on the loopback interface, for tests of failures.

    The processes end when the context exits, and with this process, however it ends. They are
    forked from a zygote, so a restart takes a tenth of a second. The clusters of this process share
    the zygote, which ends with it.

    Args:
      ps: number of tasks of the job "ps".
      workers: number of tasks of the job "worker".
      points: what happens at failpoints, by the name of the task such as "/job:worker/task:1".
      environment: environment variables of the tasks beside those of this process.

    Raises:
      UnavailableError: if a process ends while it starts.
      OpError: the error with which a task fails to start.
    """

    def __init__(
        self,
        ps: int = 1,
        workers: int = 1,
        points: Mapping[str, Mapping[str, FailpointAction]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(ps, workers, "")
        tasks = self.tasks
        names, points = list(map(str, tasks)), points or {}
        self._environment = dict(environment or {})
        if not points.keys() <= set(names):
            raise ValueError(f"points are for tasks of {names}, got {list(points)}")
        self._points = {name: failpoints(points.get(name, {}), here=False) for name in names}
        self._programs: dict[Task, ProgramProcess] = {}
        self._zygote = shared_zygote()
        try:
            for task in tasks:
                self._points[str(task)].__enter__()
                self._programs[task] = self._start(task)
            self._spec = self._at(self._listen(task, "address") for task in tasks)
            cluster = json.dumps({"cluster": self._spec.as_dict()})
            for task in tasks:
                with suppress(BrokenPipeError):  # what it says next, or its end, says why
                    self._programs[task].write_line(cluster)
            for task in tasks:
                self._listen(task, "ready")
        except BaseException:
            self.close()
            raise

    @property
    def zygote(self) -> Zygote:
        """The zygote of the tasks, which can also start other programs that use jflow."""
        return self._zygote

    def address(self, job: str = "worker", index: int = 0) -> str:
        """Returns the address of a task, "host:port"."""
        return self._spec.task_address(job, index)

    def pid(self, job: str = "worker", index: int = 0) -> int:
        """Returns the process id of a task."""
        return self._programs[Task(job, index)].pid

    def points(self, job: str = "worker", index: int = 0) -> failpoints:
        """Returns the failpoints of a task, which tell what was reached and release pauses."""
        return self._points[str(Task(job, index))]

    def kill(self, job: str = "worker", index: int = 0) -> None:
        """Kills a task's process (SIGKILL), as a crash would."""
        self._programs[Task(job, index)].kill()

    def pause(self, job: str = "worker", index: int = 0) -> None:
        """Pauses a task's process (SIGSTOP), which keeps its connections but does not respond."""
        self._programs[Task(job, index)].pause()

    def resume(self, job: str = "worker", index: int = 0) -> None:
        """Resumes a paused task (SIGCONT)."""
        self._programs[Task(job, index)].resume()

    def exit_code(self, job: str = "worker", index: int = 0) -> int | None:
        """Returns the exit code of a task's process, -9 after `kill`; None while it runs."""
        return self._programs[Task(job, index)].exit_code

    def wait_until_ended(self, job: str = "worker", index: int = 0) -> int:
        """Blocks until a task's process has ended, and returns its exit code."""
        return self._programs[Task(job, index)].wait()

    def restart(
        self,
        job: str = "worker",
        index: int = 0,
        points: Mapping[str, FailpointAction] | None = None,
    ) -> None:
        """Restarts a task at its address, ending it first if it runs; returns once it serves.

        Args:
          job, index: the task.
          points: what happens at failpoints of the new process; those of the former process are
            dropped.
        """
        task = Task(job, index)
        self._programs[task].close()
        self._points[str(task)].close()
        self._points[str(task)] = failpoints(points or {}, here=False).__enter__()
        # From its first moment on it knows the others, as callers may be waiting for it.
        self._programs[task] = self._start(task, json.dumps(self._spec.as_dict()))
        self._listen(task, "ready")

    def close(self) -> None:
        """Ends all processes and waits for them. May be called again."""
        for program in self._programs.values():
            program.close()
        for points in self._points.values():
            points.close()

    def _leave(self, failed: bool) -> None:
        self.close()

    def _start(self, task: Task, *cluster: str) -> ProgramProcess:
        environment = self._environment | self._points[str(task)].environment
        command = ["-m", CHILD, task.job, str(task.index), *cluster]
        return ProgramProcess(command, environment, zygote=self._zygote)

    def _listen(self, task: Task, key: str) -> Any:
        program = self._programs[task]
        line = program.read_line()
        if not line:
            raise UnavailableError(
                f"the process of {task} ended with exit code {program.wait()} while it started; "
                "what it printed is above",
                task=str(task),
            )
        return said(task, line, key)
