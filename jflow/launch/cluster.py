"""`LocalCluster`: a cluster of real server processes on this machine."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import MappingProxyType
from typing import IO, Any, ClassVar

from jflow import _forks
from jflow.closing import Closing
from jflow.cluster import ClusterSpec, Task
from jflow.errors import DeadlineExceededError, UnavailableError, from_code
from jflow.launch.pinning import check_cores, pinned

_STOP_TIMEOUT_S = 10.0


@_forks.guarded("kill", ignored=("stop",))
class LocalCluster(Closing):
    """A cluster of processes on the loopback interface, on ports that the system chooses.

    The processes end with the `with` block, and with this process, even if it crashes.

    Args:
      ps: number of tasks of the job "ps".
      workers: number of tasks of the job "worker".
      timeout: the longest time for all tasks to start, in seconds.
      data_roots: directories below which readers may read files; if None, those of
        JFLOW_DATA_ROOTS.
      cores: for each task, in the order of `tasks`, the processor core that its process is pinned
        to, so that tasks do not take each other's time; if None, they may use all. On Linux only.

    Raises:
      ValueError: if there is no task, not one core for each, or a core that cannot be used.
      UnimplementedError: if cores are given and the system cannot pin processes.
      UnavailableError: if a process exits while it starts.
      DeadlineExceededError: if starting takes longer than the timeout.
      OpError: the error of a task that cannot start, such as a token that is too short.
    """

    _module: ClassVar[str] = "jflow.launch.child"
    """The program of a task."""
    _environment: Mapping[str, str] = MappingProxyType({})
    """Environment variables of the tasks in addition to those of this process."""

    def __init__(
        self,
        ps: int = 1,
        workers: int = 2,
        *,
        timeout: float = 60.0,
        data_roots: Sequence[str | os.PathLike[str]] | None = None,
        cores: Sequence[int] | None = None,
    ) -> None:
        tasks = [Task("ps", i) for i in range(ps)] + [Task("worker", i) for i in range(workers)]
        if not tasks:
            raise ValueError("a cluster needs at least one task")
        if cores is not None and len(cores) != len(tasks):
            raise ValueError(f"expected a core for each of {len(tasks)} tasks, got {cores!r}")
        if cores is not None:
            check_cores(cores)
        self._name = f"local-{secrets.token_hex(4)}"
        environment = {**self._environment, "JFLOW_CLUSTER": self._name}
        if data_roots is not None:
            roots = [os.fspath(path) for path in data_roots]
            environment["JFLOW_DATA_ROOTS"] = os.pathsep.join(roots)
        _forks.mark_used()
        self._children: dict[Task, _Child] = {}
        for number, task in enumerate(tasks):
            with pinned(None if cores is None else cores[number]):
                self._children[task] = _Child(task, self._module, environment)
        watchdog = threading.Timer(timeout, self._kill_all)
        watchdog.start()
        try:
            self._spec = self._introduce()
        except UnavailableError as error:
            self.stop()
            if not watchdog.is_alive():
                raise DeadlineExceededError(f"not started within {timeout} s: {error}") from error
            raise
        except BaseException:
            self.stop()
            raise
        finally:
            watchdog.cancel()

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The tasks and their addresses."""
        return self._spec

    @property
    def tasks(self) -> list[Task]:
        """The tasks, those of the job "ps" first."""
        return list(self._children)

    def target(self, job: str = "worker", index: int = 0) -> str:
        """The target for sessions on the given task; it names the cluster and the task.

        A server that has taken the task's port since refuses what is meant for the task.
        """
        address = self._spec.task_address(job, index)
        return f"grpc://{address}?cluster={self._name}&task={Task(job, index)}"

    def pid(self, job: str, index: int = 0) -> int:
        """The process id of a task."""
        return self._children[Task(job, index)].process.pid

    def kill(self, job: str, index: int = 0) -> None:
        """Kills a task's process, as a crash would."""
        child = self._children[Task(job, index)]
        child.process.kill()
        child.process.wait()

    def stop(self) -> None:
        """Ends every process and waits for it. May be called again."""
        for child in self._children.values():
            child.close()
        for child in self._children.values():
            child.wait(_STOP_TIMEOUT_S)

    def _leave(self, failed: bool) -> None:
        self.stop()

    def _introduce(self) -> ClusterSpec:
        """Collects the address of every child and sends the cluster to all."""
        with ThreadPoolExecutor(len(self._children)) as threads:
            addresses = list(threads.map(lambda c: c.listen("address"), self._children.values()))
            jobs: dict[str, dict[int, str]] = {}
            for task, address in zip(self._children, addresses, strict=True):
                jobs.setdefault(task.job, {})[task.index] = address
            spec = ClusterSpec(jobs)
            for child in self._children.values():
                child.tell({"cluster": spec.as_dict()})
            list(threads.map(lambda c: c.listen("ready"), self._children.values()))
        return spec

    def _kill_all(self) -> None:
        for child in self._children.values():
            child.process.kill()

    def __repr__(self) -> str:
        return f"<jflow.LocalCluster {self._spec.as_dict()}>"


class _Child:
    """A server process, which exits at the end of its standard input."""

    def __init__(self, task: Task, module: str, environment: Mapping[str, str]) -> None:
        self.task = task
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, task.job, str(task.index)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
            # Ctrl-C in a terminal must reach only the program that started the cluster.
            start_new_session=True,
        )

    def tell(self, message: dict[str, Any]) -> None:
        pipe = self._pipe(self.process.stdin)
        try:
            pipe.write(json.dumps(message) + "\n")
            pipe.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def listen(self, key: str) -> Any:
        line = self._pipe(self.process.stdout).readline()
        if not line:
            raise self._ended()
        message = json.loads(line)
        if "error" in message:
            raise from_code(message["error"], message["message"], task=str(self.task))
        return message[key]

    def close(self) -> None:
        with suppress(BrokenPipeError):  # it has exited already
            self._pipe(self.process.stdin).close()

    def wait(self, timeout: float) -> None:
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._pipe(self.process.stdout).close()

    def _ended(self) -> UnavailableError:
        code = self.process.wait()
        return UnavailableError(
            f"the process of {self.task} ended with exit code {code} while the cluster started; "
            "see its output above",
            task=str(self.task),
        )

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe
