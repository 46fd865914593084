"""Clusters that a program starts, such as `LocalCluster`, whose tasks are local processes."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from jflow.base import forks
from jflow.base.cards import Card, Carded, CardTable
from jflow.base.cluster import ClusterSpec, Task
from jflow.base.cluster.jobs import numbered_tasks
from jflow.base.handles import Closing
from jflow.errors import DeadlineExceededError, UnavailableError, from_code
from jflow.launch.resources import HUGE_PAGES, TUNABLES, TaskResources, check_cores, divide_machine
from jflow.launch.zygote import Zygote


class StartedCluster(Carded, Closing):
    """Base of clusters that a program starts, with the jobs "ps" and "worker".

    Args:
      ps, workers: how many tasks the two jobs have.
      name: the name of the cluster; "" if it has none.

    Raises:
      ValueError: if there is no task.
    """

    _spec: ClusterSpec
    """Set once the tasks have addresses."""

    _instead_of_copy = "other processes reach it by a target: jflow.connect(cluster.target())"

    def __init__(self, ps: int, workers: int, name: str) -> None:
        self._tasks = numbered_tasks({"ps": ps, "worker": workers})
        if not self._tasks:
            raise ValueError("a cluster needs at least one task")
        self._name = name

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The tasks and their addresses."""
        return self._spec

    @property
    def tasks(self) -> list[Task]:
        """The tasks, with the job "ps" first."""
        return list(self._tasks)

    def target(self, job: str = "worker", index: int = 0) -> str:
        """Returns the target for sessions on a task; it names the cluster and the task.

        A server that has since taken the task's port refuses calls that are meant for the task.
        """
        named = f"cluster={self._name}&" if self._name else ""
        address = self._spec.task_address(job, index)
        return f"grpc://{address}?{named}task={Task(job, index)}"

    def _card(self) -> Card:
        rows = [
            (str(task), self._spec.task_address(task.job, task.index), *self._process_facts(task))
            for task in self._tasks
        ]
        head = ("task", "address", *self._process_head)
        facts = (("name", self._name), ("target", self.target(*self._default_task)))
        table = CardTable("tasks", head, rows, is_open=True)
        return Card(type(self).__name__, "", facts, (table,))

    _process_head: ClassVar[Sequence[str]] = ()
    """The columns of `_process_facts`."""

    def _process_facts(self, task: Task) -> Sequence[str]:
        """Returns what is known of the process of a task, for the card."""
        return ()

    @property
    def _default_task(self) -> tuple[str, int]:
        task = self._tasks[-1]
        return task.job, 0

    def _at(self, addresses: Iterable[str]) -> ClusterSpec:
        """Returns the cluster in which the tasks have these addresses."""
        jobs: dict[str, dict[int, str]] = {}
        for task, address in zip(self._tasks, addresses, strict=True):
            jobs.setdefault(task.job, {})[task.index] = address
        return ClusterSpec(jobs)


_POLL_S = 0.01


def log_name(task: Task) -> str:
    """Returns the name of a task's log file, such as "worker-1.log"."""
    return f"{task.job}-{task.index}.log"


def said(task: Task, line: str | bytes, key: str) -> Any:
    """Returns the value of a key in what the process of a task has said.

    Raises:
      OpError: the error with which it failed to start.
    """
    message = json.loads(line)
    if "error" in message:
        raise from_code(message["error"], message["message"], task=str(task))
    return message[key]


class Child:
    """A task's server process (`child.py`), which exits when its standard input ends.

    Args:
      zygote: the process that forks it.
      task: its task.
      command: "-m", its module and arguments.
      environment: all of its environment variables.
      core: the processor core that it is pinned to; None for all.
      logs: the directory of its log; None to write to the standard error of this process.
    """

    def __init__(
        self,
        zygote: Zygote,
        task: Task,
        command: Sequence[str],
        environment: Mapping[str, str],
        core: int | None = None,
        logs: Path | None = None,
    ) -> None:
        self.task = task
        if logs is None:
            self.process = zygote.start(command, environment, core=core)
            return
        with (logs / log_name(task)).open("ab") as log:
            self.process = zygote.start(command, environment, stderr=log.fileno(), core=core)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Sends a message to the process. Raises UnavailableError if it has ended."""
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def listen(self, key: str) -> Any:
        """Blocks until the process sends a message, and returns the value of its `key`.

        Raises:
          UnavailableError: if the process has ended.
          OpError: the error with which it failed to start.
        """
        line = self.process.stdout.readline()
        if not line:
            raise self._ended()
        return said(self.task, line, key)

    def close(self) -> None:
        """Tells the process to exit. May be called again."""
        with suppress(BrokenPipeError):  # it has ended already
            self.process.stdin.close()

    def wait(self, timeout: float) -> None:
        """Waits until the process has exited; kills it after `timeout` seconds."""
        self.close()
        end = time.monotonic() + timeout
        with suppress(ConnectionError):  # the zygote has ended, and all of its programs with it
            while self.process.poll() is None:
                if time.monotonic() > end:
                    self.process.kill()
                time.sleep(_POLL_S)
        self.process.stdout.close()

    def _ended(self) -> UnavailableError:
        try:
            ended = f"ended with exit code {self.process.wait()}"
        except ConnectionError:
            ended = "was ended"
        return UnavailableError(
            f"the process of {self.task} {ended} while the cluster started; see its output above",
            task=str(self.task),
        )


_STOP_TIMEOUT_S = 10.0


@forks.guarded("kill", "restart", ignored=("stop",))
class LocalCluster(StartedCluster):
    """A cluster of processes on the loopback interface, with ports that the system chooses.

    The processes end when the context exits, and with this process, even if it crashes. They are
    forked from one that has imported JAX and initialized nothing, so each starts in a tenth of the
    time of a new Python. JAX reads its environment variables when the cluster starts.

    Args:
      ps: number of tasks of the job "ps".
      workers: number of tasks of the job "worker".
      timeout: the longest time for all tasks to start, in seconds.
      data_roots: directories below which readers may read files; if None, those of
        JFLOW_DATA_ROOTS.
      cores: for each task, in the order of `tasks`, the processor core that its process is pinned
        to, so that tasks do not take each other's time; if None, they may use all. On Linux only.
      resources: what each task gets of the GPUs, their memory, the threads of the machine, and how
        many CPU devices it has. Where there are GPUs, tasks of the job "ps" run on the CPU and the
        others divide the GPUs.
      logs: a directory in which the standard error of each task is appended to a file of its own,
        such as "worker-1.log"; if None, it is that of this process.
      on_ready: called with the name of each task and its "grpc://host:port" as soon as it serves,
        on any thread.

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
        resources: TaskResources = TaskResources(),  # noqa: B008 - it cannot be changed
        logs: str | os.PathLike[str] | None = None,
        on_ready: Callable[[str, str], object] = lambda *_: None,
    ) -> None:
        super().__init__(ps, workers, f"local-{secrets.token_hex(4)}")
        tasks = self.tasks
        if cores is not None and len(cores) != len(tasks):
            raise ValueError(f"expected a core for each of {len(tasks)} tasks, got {cores!r}")
        if cores is not None:
            check_cores(cores)
        self._timeout = timeout
        self._logs = None if logs is None else Path(logs)
        self._cores = {} if cores is None else dict(zip(tasks, cores, strict=True))
        self._variables = {**self._environment, "JFLOW_CLUSTER": self._name}
        if data_roots is not None:
            roots = [os.fspath(path) for path in data_roots]
            self._variables["JFLOW_DATA_ROOTS"] = os.pathsep.join(roots)
        self._divided = divide_machine(resources, tasks, os.environ | self._variables)
        forks.mark_used()
        tunables = {TUNABLES: os.environ.get(TUNABLES, HUGE_PAGES)}
        # JAX reads most of them when it is imported, which only the zygote does.
        self._zygote = Zygote([self._module], tunables | self._variables | resources.of_all)
        self._children: dict[Task, Child] = {}
        with self._starting():
            for task in tasks:
                self._children[task] = self._started(task)
            self._spec = self._introduce(on_ready)

    def pid(self, job: str, index: int = 0) -> int:
        """Returns the process id of a task."""
        return self._children[Task(job, index)].process.pid

    def exit_code(self, job: str, index: int = 0) -> int | None:
        """Returns the exit code of a task's process, negative for a signal; None while it runs."""
        return self._children[Task(job, index)].process.poll()

    def kill(self, job: str, index: int = 0) -> None:
        """Kills a task's process, as a crash would."""
        child = self._children[Task(job, index)]
        child.process.kill()
        child.process.wait()

    def restart(self, job: str, index: int = 0) -> None:
        """Restarts a task at its address; ends its process first if it runs.

        It returns when the task serves. What the task held is lost.

        Raises:
          UnavailableError, DeadlineExceededError, OpError: as the constructor; the cluster is
            stopped then.
        """
        task = Task(job, index)
        former_child = self._children[task]
        former_child.process.kill()
        former_child.wait(_STOP_TIMEOUT_S)
        with self._starting():
            self._children[task] = self._started(task, self._spec)
            self._children[task].listen("ready")

    def stop(self) -> None:
        """Ends all processes and waits for them. May be called again."""
        for child in self._children.values():
            child.close()
        for child in self._children.values():
            child.wait(_STOP_TIMEOUT_S)
        self._zygote.close()

    def _leave(self, failed: bool) -> None:
        self.stop()

    def _started(self, task: Task, spec: ClusterSpec | None = None) -> Child:
        """Starts the process of a task, and passes it the cluster if `spec` is given."""
        cluster_argument = () if spec is None else (json.dumps(spec.as_dict()),)
        command = ("-m", self._module, task.job, str(task.index), *cluster_argument)
        environment = os.environ | self._variables | self._divided[task]
        return Child(self._zygote, task, command, environment, self._cores.get(task), self._logs)

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """A context manager in which tasks start; ends the cluster on failure or timeout."""
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            is_late = True
            self._zygote.abort()

        watchdog = threading.Timer(self._timeout, give_up)
        watchdog.start()
        try:
            yield
        except BaseException as error:
            watchdog.cancel()
            self.stop()
            if is_late and isinstance(error, ConnectionError | UnavailableError):
                late = f"not started within {self._timeout} s: {error}"
                raise DeadlineExceededError(late) from error
            if isinstance(error, ConnectionError):
                raise UnavailableError(str(error)) from error
            raise
        watchdog.cancel()

    def _introduce(self, on_ready: Callable[[str, str], object]) -> ClusterSpec:
        """Collects the address of every child, sends the cluster to all, and awaits them."""
        children = self._children.values()
        with ThreadPoolExecutor(len(children)) as threads:
            try:
                spec = self._at(threads.map(lambda child: child.listen("address"), children))
                for child in children:
                    child.tell({"cluster": spec.as_dict()})

                def ready(child: Child) -> None:
                    child.listen("ready")
                    address = spec.task_address(child.task.job, child.task.index)
                    on_ready(str(child.task), f"grpc://{address}")

                list(threads.map(ready, children))
            except BaseException:
                self._zygote.abort()  # or the threads would wait for their children
                raise
        return spec

    def __repr__(self) -> str:
        n_up = sum(child.process.poll() is None for child in self._children.values())
        return f"<jflow.LocalCluster {n_up} of {len(self._tasks)} tasks up {self._spec.as_dict()}>"

    _process_head: ClassVar[Sequence[str]] = ("process", "state")

    def _process_facts(self, task: Task) -> Sequence[str]:
        process = self._children[task].process
        code = process.poll()
        return str(process.pid), "up" if code is None else f"ended with {code}"
