"""`RayCluster`: a cluster whose tasks are Ray actors, which Ray places, starts and restarts.

Ray runs on the machines already and knows what is free on them. jflow asks it for one actor a task,
all in one placement group, and for nothing else: tasks talk to each other as they always do, and no
value of theirs is in Ray's object store.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from jflow.base import forks
from jflow.base.cluster import ClusterSpec, Task, join_address, read_tf_config
from jflow.base.deadline.notices import WaitNotice
from jflow.errors import (
    DeadlineExceededError,
    NotFoundError,
    OpError,
    ResourceExhaustedError,
    UnavailableError,
)
from jflow.launch.cluster import StartedCluster

_NOT_PASSED_ON = frozenset(
    {"JFLOW_TOKEN_FILE", "JFLOW_USERS_FILE", "JFLOW_POD", "JFLOW_ROLE", "JFLOW_ADVERTISE"}
)
"""Variables that are valid only in this process, or name a file of this machine."""


@forks.guarded("kill", "wait_until_ready", ignored=("stop",))
class RayCluster(StartedCluster):
    """A cluster of Ray actors, one process per task, which Ray restarts when they fail.

    A restarted task has its former address and has lost its state, as after `LocalCluster.restart`.
    It stays on its node; if the node is lost, make a new cluster. The tasks end when the context
    exits, and with this process. If this process is not connected to Ray, it calls `ray.init()`,
    which finds a cluster by RAY_ADDRESS or starts one on this machine.

    The tasks have the token of this process, and those of its environment variables whose names
    begin with JFLOW_. Beyond the loopback interface they need certificates, in a directory of the
    same name (JFLOW_TLS_DIR) on each node, or JFLOW_INSECURE=1.

    Args:
      ps: number of tasks of the job "ps"; they use no GPU.
      workers: number of tasks of the job "worker".
      cpus: what each task reserves of Ray's resource "CPU".
      gpus: how many GPUs each worker has; Ray says which ones.
      strategy: how tasks are spread over nodes: Ray's "PACK", "SPREAD", "STRICT_PACK" or
        "STRICT_SPREAD".
      n_restarts: how often Ray starts each task again; -1 for always.
      timeout: the longest time for all tasks to start, in seconds.
      may_grow: whether Ray adds nodes for what its nodes lack, as an autoscaler does; the timeout
        is then one for that, too.

    Raises:
      ValueError: if there is no task, or TF_CONFIG describes a cluster.
      NotFoundError: if the package ray is not installed.
      UnavailableError: if a task cannot start, or Ray has ended.
      ResourceExhaustedError: if Ray's nodes have less than the tasks reserve, and it may not grow.
      DeadlineExceededError: if starting takes longer than the timeout, also because what the tasks
        reserve is in use.
    """

    def __init__(
        self,
        ps: int = 1,
        workers: int = 2,
        *,
        cpus: float = 1.0,
        gpus: int = 0,
        strategy: str = "PACK",
        n_restarts: int = -1,
        timeout: float = 120.0,
        may_grow: bool = False,
    ) -> None:
        super().__init__(ps, workers, f"ray-{secrets.token_hex(4)}")
        check_tf_config(f"RayCluster starts one with ps={ps} and workers={workers}")
        self._ray = _ray()
        self._timeout = timeout
        self._n_restarts = n_restarts
        self._actors: dict[Task, Any] = {}
        self._needs = {
            task: {"CPU": cpus} | ({"GPU": gpus} if gpus and task.job == "worker" else {})
            for task in self.tasks
        }
        if not self._ray.is_initialized():
            self._ray.init()
        forks.mark_used()
        if not may_grow:
            self._check_possible()
        self._group = self._ray.util.placement_group([*self._needs.values()], strategy)
        try:
            self._reserve()
            self._spec = self._start()
        except BaseException:
            self.stop()
            raise

    def node(self, job: str, index: int = 0) -> str:
        """Returns the id of the Ray node that a task runs on. Raises as `wait_until_ready`."""
        (report,) = self._reports_of(Task(job, index))
        return str(report["node"])

    def kill(self, job: str, index: int = 0) -> None:
        """Kills a task's process, as a crash would; Ray restarts it."""
        self._ray.kill(self._actors[Task(job, index)], no_restart=False)

    def wait_until_ready(self, job: str, index: int = 0) -> int:
        """Blocks until a task serves, at most for the timeout, and returns its incarnation.

        Each life of a task has another incarnation. Just after `kill` it may be the former one.

        Raises:
          UnavailableError: if it has failed and Ray does not start it again.
          DeadlineExceededError: if it takes longer.
        """
        (report,) = self._reports_of(Task(job, index))
        return int(report["incarnation"])

    def stop(self) -> None:
        """Ends every task. May be called again."""
        for actor in self._actors.values():
            with suppress(Exception):  # Ray has ended, and all of its actors with it
                self._ray.kill(actor)
        self._actors.clear()
        with suppress(Exception):
            self._ray.util.remove_placement_group(self._group)

    def _leave(self, failed: bool) -> None:
        self.stop()

    def _check_possible(self) -> None:
        """Raises ResourceExhaustedError if Ray's nodes cannot provide what the tasks reserve."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        needs = [*self._needs.values()]
        names = {name: None for need in needs for name in need}
        total_need, total_supply = _sums(needs, names), _sums(nodes, names)
        is_each_possible = all(any(_fits(need, node) for node in nodes) for need in needs)
        if is_each_possible and _fits(total_need, total_supply):
            return
        available = [{name: node.get(name, 0) for name in names} for node in nodes]
        raise ResourceExhaustedError(
            f"{len(needs)} tasks reserve {needs}, together {total_need}, and the nodes of Ray have "
            f"{available}: ask for less, such as cpus=0.5, add nodes, or pass may_grow=True where "
            "Ray adds them by itself"
        )

    def _reserve(self) -> None:
        """Blocks until Ray has reserved the tasks' resources. Raises DeadlineExceededError."""
        bundles = [*self._needs.values()]
        with WaitNotice(lambda: f"for Ray to reserve {bundles}; {self._resources()}").timed():
            is_reserved = self._group.wait(self._timeout)
        if not is_reserved:
            raise DeadlineExceededError(
                f"Ray did not reserve {bundles} within {self._timeout} s; "
                f"{self._resources()}: ask for less, or add nodes"
            )

    def _resources(self) -> str:
        """Returns a description of Ray's total and free resources, for messages."""
        return (
            f"its nodes have {self._ray.cluster_resources()}, of which "
            f"{self._ray.available_resources()} are free"
        )

    def _start(self) -> ClusterSpec:
        """Starts all tasks and returns the cluster."""
        from jflow.net.wire.token import load_token  # noqa: PLC0415 - it imports JAX; see zygote.py

        spec = self._addresses()
        passed_on = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("JFLOW_") and name not in _NOT_PASSED_ON
        }
        # Not in Ray's runtime environment, which its dashboard shows.
        environment = passed_on | {"JFLOW_CLUSTER": self._name, "JFLOW_TOKEN": load_token()}
        actor = self._ray.remote(RayTask)
        for task in self.tasks:
            options = self._options(task) | {
                "name": f"{self._name}{task}",
                "max_restarts": self._n_restarts,
                "max_task_retries": -1,  # of `about`, which so waits for a task that restarts
            }
            if task.job == "ps":
                options["runtime_env"] = {"env_vars": {"JAX_PLATFORMS": "cpu"}}
            task_actor = actor.options(**options).remote(
                spec.as_dict(), task.job, task.index, environment
            )
            self._actors[task] = task_actor
        self._reports_of(*self.tasks)
        return spec

    def _addresses(self) -> ClusterSpec:
        """Returns an address for each task, with a free port on the node reserved for the task."""
        free = self._ray.remote(_free_here)
        addresses: list[str] = []
        while len({*addresses}) < len(self.tasks):  # a node may name a port twice
            calls = [free.options(**self._options(task)).remote() for task in self.tasks]
            addresses = self._get_results(calls, "a free port")
        return self._at(addresses)

    def _options(self, task: Task) -> dict[str, Any]:
        """Returns Ray's options for an actor or function of a task: its bundle and resources."""
        place = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        needs = self._needs[task]
        return {
            "num_cpus": needs["CPU"],
            "num_gpus": needs.get("GPU", 0),
            "scheduling_strategy": place(self._group, self.tasks.index(task)),
        }

    def _reports_of(self, *tasks: Task) -> list[dict[str, Any]]:
        """Returns the reports of `RayTask.about` of tasks; blocks while Ray starts them."""
        calls = [self._actors[task].about.remote() for task in tasks]
        reports = self._get_results(calls, f"{', '.join(map(str, tasks))} to serve")
        for task, report in zip(tasks, reports, strict=True):
            if refusal := report.get("refusal"):
                raise UnavailableError(refusal, task=str(task))
        return reports

    def _get_results(self, calls: list[Any], what: str) -> list[Any]:
        """Returns the results of Ray calls; raises Ray's errors as jflow's."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(calls, timeout=self._timeout)  # type: ignore[no-any-return]
        except errors.GetTimeoutError as error:
            raise DeadlineExceededError(f"waited {self._timeout} s for {what}") from error
        except errors.RayError as error:
            raise UnavailableError(f"Ray failed while waiting for {what}: {error}") from error

    def __repr__(self) -> str:
        return f"<jflow.launch.RayCluster {self._spec.as_dict()}>"


def _sums(resources: Sequence[Mapping[str, float]], names: Iterable[str]) -> dict[str, float]:
    """Returns the total amount of each of the named resources."""
    return {name: sum(one.get(name, 0) for one in resources) for name in names}


def _fits(need: Mapping[str, float], has: Mapping[str, float]) -> bool:
    """Whether `has` provides the needed amount of each resource."""
    return all(has.get(name, 0) >= amount for name, amount in need.items())


def _free_here() -> str:
    """Returns an address with a free port on the node that this runs on."""
    return free_address(_ray().util.get_node_ip_address())


def _ray() -> Any:
    """Imports and returns the package ray. Raises NotFoundError if it is not installed."""
    try:
        import ray  # noqa: PLC0415 - an extra
        import ray.util.scheduling_strategies  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise NotFoundError(
            "RayCluster needs the package ray; install it by pip install 'jflow[ray]'"
        ) from None
    return ray


class RayTask:
    """The Ray actor of a task, whose process runs the task's server.

    Ray makes it again, with the same arguments, when its process has failed.

    Args:
      cluster: the tasks and their addresses, as for `ClusterSpec`.
      job, index: its task.
      environment: environment variables that it sets for itself.
    """

    def __init__(
        self, cluster: Mapping[str, object], job: str, index: int, environment: Mapping[str, str]
    ) -> None:
        from jflow.task.server import Server  # noqa: PLC0415 - this process may be that of a program

        os.environ.update(environment)
        self._task = Task(job, index)
        self._server: Server | None = None
        self._refusal = ""
        try:
            check_tf_config(
                f"RayCluster has started {self._task}", ClusterSpec(cluster), self._task
            )
            self._server = Server(ClusterSpec(cluster), job, index)
        except ValueError as error:
            self._refusal = str(error)
        except OpError as error:
            self._refusal = error.message

    def about(self) -> dict[str, object]:
        """Returns the task's incarnation and node once it serves, or the reason why it cannot."""
        if self._server is None:
            return {"refusal": f"{self._task} cannot start: {self._refusal}"}
        import ray  # noqa: PLC0415 - an extra, which has started this process

        node = ray.get_runtime_context().get_node_id()
        return {"incarnation": self._server.incarnation, "node": node}

    def __repr__(self) -> str:
        return f"RayTask({self._task}, {self._server!r})"


def free_address(host: str) -> str:
    """Returns an address on this machine with a free port."""
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(kind, socket.SOCK_STREAM) as one:
        one.bind((host, 0))
        return join_address(host, one.getsockname()[1])


def check_tf_config(
    other: str, cluster: ClusterSpec | None = None, task: Task | None = None
) -> None:
    """Raises ValueError if TF_CONFIG contradicts the cluster and task that Ray is to start.

    Args:
      other: what Ray does instead, for the message.
      cluster, task: the cluster, if it is known already, and the task of this process.

    Raises:
      ValueError: if TF_CONFIG describes another one.
    """
    config = read_tf_config()
    own = None if config.job is None else Task(config.job, config.index or 0)
    is_silent = not config.cluster and own is None
    if is_silent or (cluster and config.cluster == cluster and own in (None, task)):
        return
    cluster_text = "" if cluster is None else f" of the cluster {cluster.as_dict()}"
    raise ValueError(
        f"TF_CONFIG describes the cluster {config.cluster.as_dict()} and says that this process is "
        f"{own or 'no task of it'}, but {other}{cluster_text}; "
        "unset TF_CONFIG where Ray starts tasks, or use the cluster that it "
        "describes, without RayCluster"
    )
