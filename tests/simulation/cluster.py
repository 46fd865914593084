"""The servers of a simulated cluster: those of jflow, but for their sockets, threads and clocks."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from jflow.base.cluster import ClusterDeviceFilters, ClusterSpec, Task, split_address
from jflow.net.protocol.identity import ServerLocation
from jflow.net.protocol.tokens import NO_USERS, Secret
from jflow.state.members import MemberList
from jflow.state.records.allowed_directories import CHECKPOINTS, AllowedDirectories
from jflow.task.server.running import ServerTerms, start_server
from jflow.task.worker import Worker
from tests.simulation.loop import Host, SimulatedLoop
from tests.simulation.network import Network, SimulatedTransport
from tests.simulation.trace import Trace

WORKERS = (Task("worker", 0), Task("worker", 1))
SERVERS = (Task("ps", 0), Task("ps", 1))
TASKS = (*WORKERS, *SERVERS)
SECRET = Secret("a token of a simulation, which nothing outside of it has to know")
CLUSTER = ClusterSpec({"worker": ["10.0.0.1:1", "10.0.0.2:1"], "ps": ["10.0.0.3:1", "10.0.0.4:1"]})


class Life:
    """One life of a task: its host, and its server while that runs.

    Args:
      cluster: has it.
      task: the task.
      number: how many lives it has had before.
    """

    def __init__(self, cluster: Cluster, task: Task, number: int) -> None:
        self.task = task
        self.host: Host = cluster.loop.host(f"{task.job}{task.index}.{number}")
        self.server: Any = None
        self._cluster = cluster
        self.host.start(self._serve())

    @property
    def worker(self) -> Worker:
        """The worker of the server, which must have started."""
        worker: Worker = self.server.worker
        return worker

    async def _serve(self) -> None:
        location, counts = ServerLocation(), {"CPU": 1}
        filters, file = ClusterDeviceFilters(), self._cluster.files[self.task]
        terms = ServerTerms(SECRET, NO_USERS, "", location, b"", counts, file, filters)
        roots = AllowedDirectories((self._cluster.directory,), CHECKPOINTS)
        make = partial(Worker, checkpoint_roots=roots)
        kept = file.members
        server = await start_server(
            self.task,
            CLUSTER if kept is None else kept.cluster,
            [split_address(_address(self.task))[0]],
            SimulatedTransport(self._cluster.network),
            terms,
            AllowedDirectories(()),
            make,
        )
        await server.begin_with(kept)
        self.server = server


class MembersOnDisk:
    """The list of members that a task has written, which outlives it; None before the first."""

    members: MemberList | None = None

    def write(self, members: MemberList) -> None:
        """Keeps a list."""
        self.members = members


class Cluster:
    """The tasks of a simulation, of which each may die and live again.

    Args:
      loop: runs them.
      trace: notes what happens.
      directory: where checkpoints are.

    Attributes:
      network: connects them.
      files: the list of members that each task keeps.
      lives: the present life of each task.
    """

    def __init__(self, loop: SimulatedLoop, trace: Trace, directory: str) -> None:
        self.loop, self.trace, self.directory = loop, trace, directory
        self.network = Network(loop, trace)
        self.files = {task: MembersOnDisk() for task in TASKS}
        self._n_lives = dict.fromkeys(TASKS, 1)
        self.lives = {task: Life(self, task, 0) for task in TASKS}

    @property
    def is_up(self) -> bool:
        """Whether every task serves."""
        return all(
            life.server is not None and not life.host.is_dead for life in self.lives.values()
        )

    def kill(self, task: Task) -> None:
        """Ends a task, as `kill -9` does."""
        host = self.lives[task].host
        if not host.is_dead:
            self.trace.note("kill", host.name)
            host.die()
            self.network.listeners.pop(_address(task), None)
            self.network.died(host)

    def restart(self, task: Task) -> None:
        """Begins another life of a task that has ended."""
        if self.lives[task].host.is_dead:
            life = self.lives[task] = Life(self, task, self._n_lives[task])
            self._n_lives[task] += 1
            self.trace.note("restart", life.host.name)

    def pause(self, task: Task, is_paused: bool) -> None:
        """Stops a task, or lets it go on."""
        host = self.lives[task].host
        if host.is_paused != is_paused and not host.is_dead:
            self.trace.note("pause" if is_paused else "continue", host.name)
            host.pause(is_paused)


def _address(task: Task) -> str:
    address: str = CLUSTER.task_address(task.job, task.index)
    return address


def device() -> jax.Device:
    """Returns the device on which everything is computed."""
    return jax.devices("cpu")[0]
