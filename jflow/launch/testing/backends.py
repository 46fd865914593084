"""Backends that a test suite runs on: this process, servers in it, servers in their own processes.

A suite that is written for `BackendUnderTest` runs on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import jax

from jflow.client.session import Session
from jflow.launch import LocalCluster
from jflow.task.server import Server


@dataclass(frozen=True)
class BackendUnderTest:
    """A backend on which tests can open sessions.

    Attributes:
      name: such as "local".
      targets: targets of the servers; [""] if there are none.
      devices: names of devices, on different tasks where there are tasks; at least two if this
        process has two CPU devices (`JAX_NUM_CPU_DEVICES=2`).
      shared: whether sessions share variables.
    """

    name: str
    targets: list[str]
    devices: list[str]
    shared: bool

    @property
    def target(self) -> str:
        """The target of the first server; "" if the backend has none."""
        return self.targets[0]

    def session(self, which: int = 0, **options: Any) -> Session:
        """Opens a session on the server `which`, with options as for `jflow.Session`."""
        return Session(self.targets[which % len(self.targets)], **options)

    def reset(self, *containers: str) -> None:
        """Frees containers on all tasks; the default container if none is named."""
        Session.reset(self.target, list(containers))


@contextmanager
def local() -> Iterator[BackendUnderTest]:
    """Yields the backend of this process, without servers."""
    devices = [f"/device:CPU:{i}" for i in range(_n_cpu_devices())]
    yield BackendUnderTest("local", [""], devices, shared=False)


@contextmanager
def in_process(jobs: dict[str, int] | None = None) -> Iterator[BackendUnderTest]:
    """Yields servers in this process, on ports that the system chooses.

    Args:
      jobs: number of tasks by job; a parameter server and a worker if None.
    """
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, jobs or {"ps": 1, "worker": 1})
        targets = [server.target for server in servers if "ps" not in repr(server)]
        last = _n_cpu_devices() - 1
        devices = [
            *(f"/job:worker/task:{i}/device:CPU:{min(i, last)}" for i in range(len(targets))),
            f"/job:ps/task:0/device:CPU:{min(1, last)}",
        ]
        yield BackendUnderTest("in process", targets, devices, shared=True)


@contextmanager
def processes() -> Iterator[BackendUnderTest]:
    """Yields a parameter server and a worker, each in a process of its own."""
    with LocalCluster(ps=1, workers=1) as cluster:
        targets = [cluster.target("worker", 0), cluster.target("ps", 0)]
        devices = ["/job:worker/task:0/cpu:0", "/job:ps/task:0/cpu:0"]
        yield BackendUnderTest("processes", targets, devices, shared=True)


BACKENDS: Mapping[str, Callable[[], AbstractContextManager[BackendUnderTest]]] = {
    "local": local,
    "in_process": in_process,
    "processes": processes,
}
"""All backends by the names that parametrized tests show."""


class BackendPool:
    """Opens each backend at first use and keeps it open until the pool is closed.

    Starting a cluster of processes takes seconds, so a test run has one pool.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._open: dict[str, BackendUnderTest] = {}

    def get(self, name: str) -> BackendUnderTest:
        """Returns the backend with this name in `BACKENDS`; opens it if necessary."""
        if name not in self._open:
            self._open[name] = self._stack.enter_context(BACKENDS[name]())
        return self._open[name]

    def close(self) -> None:
        """Closes all backends."""
        self._open.clear()
        self._stack.close()


def start_servers(enter: Callable[[Server], Server], jobs: dict[str, int]) -> list[Server]:
    """Starts servers in this process as one cluster, on ports that the system chooses.

    Args:
      enter: enters a server's `with` block, such as `ExitStack().enter_context`.
      jobs: number of tasks by job.
    """
    servers: list[Server] = []
    cluster: dict[str, dict[int, str]] = {}
    for job, n in jobs.items():
        own = [enter(Server({job: {i: "127.0.0.1:0"}}, job, i)) for i in range(n)]
        cluster[job] = {i: one.cluster_spec.task_address(job, i) for i, one in enumerate(own)}
        servers += own
    for server in servers:
        server.connect(cluster)
    return servers


def _n_cpu_devices() -> int:
    return len(jax.local_devices(backend="cpu"))
