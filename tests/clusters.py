"""What tests run against: this process, servers in this process, servers in processes of their own.

`Backend` is the one interface that the shared suites use, so that each of them is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import jflow as tf


@dataclass(frozen=True)
class Backend:
    """Where sessions can be opened.

    Attributes:
      targets: targets of the servers; [""] when there is none.
      devices: at least two devices of it, on different tasks where there are tasks.
      shared: whether sessions share variables.
    """

    name: str
    targets: list[str]
    devices: list[str]
    shared: bool

    def session(self, which: int = 0, **options: Any) -> tf.Session:
        """A session on one of the servers."""
        return tf.Session(self.targets[which % len(self.targets)], **options)

    def reset(self, *containers: str) -> None:
        """Frees containers, the default one if none is named."""
        tf.Session.reset(self.targets[0], list(containers))


@contextmanager
def local() -> Iterator[Backend]:
    """This process alone; it has three CPU devices."""
    yield Backend("local", [""], ["/device:CPU:0", "/device:CPU:1", "/device:CPU:2"], shared=False)


@contextmanager
def in_process(jobs: dict[str, int] | None = None) -> Iterator[Backend]:
    """Servers in this process, a task each, on ports that the system chooses."""
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, jobs or {"ps": 1, "worker": 1})
        targets = [server.target for server in servers if "ps" not in repr(server)]
        devices = [f"/job:worker/task:{i}/device:CPU:{i}" for i in range(len(targets))]
        yield Backend("in process", targets, [*devices, "/job:ps/task:0/device:CPU:1"], shared=True)


def start_servers(
    enter: Callable[[tf.train.Server], tf.train.Server], jobs: dict[str, int]
) -> list[tf.train.Server]:
    """Servers that know each other; none of their ports was known beforehand."""
    servers = [
        enter(tf.train.Server({job: {i: "127.0.0.1:0"}}, job, i))
        for job, n in jobs.items()
        for i in range(n)
    ]
    cluster: dict[str, dict[int, str]] = {}
    for server in servers:
        for job, tasks in server.cluster_spec.as_dict().items():
            items = tasks.items() if isinstance(tasks, dict) else enumerate(tasks)
            cluster.setdefault(job, {}).update(items)
    for server in servers:
        server.connect(cluster)
    return servers


@contextmanager
def processes() -> Iterator[Backend]:
    """Servers in processes of their own."""
    with tf.LocalCluster(ps=1, workers=1) as cluster:
        targets = [cluster.target("worker", 0), cluster.target("ps", 0)]
        devices = ["/job:worker/task:0/cpu:0", "/job:ps/task:0/cpu:0"]
        yield Backend("processes", targets, devices, shared=True)


BACKENDS = {"local": local, "in_process": in_process, "processes": processes}
