"""`RunningServer`: the parts of a server that runs, put together."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from jflow.base.cluster import ClusterDeviceFilters, ClusterSpec, Task, split_address
from jflow.base.drivers import LoopDriver
from jflow.base.drivers.loop import TaskSet
from jflow.base.failpoints import async_failpoint
from jflow.base.logs import event
from jflow.errors import UnavailableError
from jflow.net.protocol import (
    Arrivals,
    ClusterTasks,
    DeviceRecord,
    Endpoint,
    MasterSession,
    OwnTask,
    Rights,
    Secret,
    ServerInfo,
    ServerLocation,
    Transport,
    Users,
    WorkerSession,
)
from jflow.net.wire import file_system_id
from jflow.plan.xla import export_platform
from jflow.state.core import TaskMembers
from jflow.state.core.membership import MembersFile
from jflow.state.members import MemberList
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.watch import StatusRequest
from jflow.task.execution import local_devices, memory_limits
from jflow.task.master import Master
from jflow.task.server.apart import check_can_compile_apart
from jflow.task.server.loop import take_64_bits
from jflow.task.server.quotas import quotas_of
from jflow.task.server.slow_steps import SlowSteps
from jflow.task.server.stuck import RESTART_LIMIT_S, leaving_error, save_what_can_be, saved_prefix
from jflow.task.server.watched import ServedTask
from jflow.task.worker import Worker

_LOG = logging.getLogger(__name__)
_N_THREADS = 8

LEAVE_S = 30.0
"""How long a task that leaves waits for the steps that it runs, in seconds."""
_LEAVE_POLL_S = 0.05


class ServerTerms(NamedTuple):
    """The authentication, the identity and the session options of a server.

    Attributes:
      secret, users, cluster_name, location: see `Endpoint`.
      session_defaults: see `ServerInfo`.
      device_counts: the largest number of devices of a type.
      file: keeps the list of members; None if nothing does.
      filters: which tasks it sees.
      compiles_apart: whether other processes compile programs.
    """

    secret: Secret
    users: Users
    cluster_name: str
    location: ServerLocation
    session_defaults: bytes
    device_counts: Mapping[str, int]
    file: MembersFile | None
    filters: ClusterDeviceFilters
    compiles_apart: bool = False


class RunningServer:
    """The parts of a running server; see `protocol.services.ServerRoles`."""

    def __init__(
        self,
        task: Task,
        cluster: ClusterSpec,
        transport: Transport,
        terms: ServerTerms,
        threads: ThreadPoolExecutor,
        roots: AllowedDirectories,
        make_worker: Callable[..., Worker],
    ) -> None:
        devices = local_devices(task, terms.device_counts)
        if terms.compiles_apart:
            check_can_compile_apart(devices.values())
        self.compiles_apart = terms.compiles_apart
        incarnation = secrets.randbits(63) + 1
        self.threads = threads
        self.tasks = ClusterTasks(cluster, transport, terms.secret, task, terms.cluster_name)
        self.worker = make_worker(task, devices, self.tasks, threads, roots, take_64_bits)
        self.members = self.worker.members = TaskMembers(
            task,
            MemberList.first(cluster),
            self.tasks,
            LoopDriver(threads),
            terms.file,
            self.tasks.is_up,
        )
        self.members.changed = self._members_changed
        self._filters = terms.filters
        self.tasks.arrivals = Arrivals(str(task), self.worker.deliver)
        self.tasks.own = OwnTask(self.info, self.worker)
        self._task = task
        self._slow_steps: SlowSteps | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._incarnation = incarnation
        self._session_defaults = terms.session_defaults
        memory = memory_limits(devices)
        self.worker.containers.usage.quotas = quotas_of(sum(memory.values()))
        self._devices = tuple(
            DeviceRecord(
                device,
                export_platform(found),
                incarnation,
                memory_limit_bytes=memory[device],
                file_system=file_system_id(),
            )
            for device, found in devices.items()
        )
        gate, fences = self.worker.moves.steps, self.worker.claims.fences
        self.master = Master(self.info, self.tasks, self.members, gate, fences)
        self.watched = self.worker.watched = ServedTask(self.info, self.worker, self.master)
        self.endpoint = Endpoint(
            self, terms.secret, terms.location, terms.cluster_name, terms.users
        )
        self.listener = transport.listener(
            self.endpoint.services(), lambda: self.watched.is_serving
        )

    def info(self) -> ServerInfo:
        return ServerInfo(
            self._task,
            self._incarnation,
            self.tasks.cluster,
            self._devices,
            self.worker.programs.n_compiled,
            self._session_defaults,
            successors=self.tasks.successors,
        )

    def set_cluster(self, cluster: ClusterSpec) -> None:
        """Sets the addresses of a cluster whose members have not changed since the start."""
        if self.members.members.epoch == 0:
            self.members.members = MemberList.first(cluster)
            self.tasks.replace_members(cluster, {})

    def _members_changed(self, members: MemberList) -> None:
        """Makes a new list of members count."""
        for task, successor in members.left.items():
            self.worker.moves.leave_task(task, successor)
        successor = members.successor_of(self._task)
        if successor == self._task:
            cluster = self._filters.seen_by(self._task, members.cluster)
            self.tasks.replace_members(cluster, members.left)
            event(_LOG, logging.INFO, "members_changed", epoch=members.epoch)
        elif self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(
                self._leave(successor, members.addresses[str(successor)])
            )

    async def _leave(self, successor: Task, address: str) -> None:
        """Ends the server, once what it runs for clients has ended."""
        event(_LOG, logging.INFO, "server_leaves", server=str(self._task), to=str(successor))
        self.endpoint.refuse_clients(
            UnavailableError(
                f"{self._task} has left the cluster, and {successor} at {address} has what was on "
                "it; connect to another task",
                task=str(self._task),
            )
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                while self._is_busy:
                    await asyncio.sleep(_LEAVE_POLL_S)
        self.watched.stop()

    @property
    def _is_busy(self) -> bool:
        """Whether it runs a part of a step, or owes a caller an answer."""
        owes_answers = self.endpoint.owes_clients or self.members.is_being_removed
        return owes_answers or bool(self.worker.running.listed(StatusRequest())[0])

    def open_master_session(self, rights: Rights) -> MasterSession:
        return self.master.open_session(rights)

    def open_worker_session(self, caller: Task | None) -> WorkerSession:
        return self.worker.open_session(caller)

    async def watch_steps(self, slow_s: float, abandoned_s: float) -> None:
        """Starts to log slow steps, and to look for devices that are stuck.

        Args:
          slow_s: after how many seconds a step is slow.
          abandoned_s: after how many seconds an abandoned program makes its device stuck.
        """
        self.worker.abandoned.limit_s = abandoned_s
        self._slow_steps = SlowSteps(self.worker.running.listed, slow_s)
        self._slow_steps.start()

    async def leave_when_stuck(self, leaves: Callable[[str], object]) -> None:
        """Ends the server when a device of it is stuck, after its callers got the reason.

        Args:
          leaves: called with the reason.
        """
        leaving = TaskSet()

        async def end(reason: str) -> None:
            held = await save_what_can_be(self.worker, saved_prefix(self._task))
            leaves(f"{reason}. {held}")
            self.endpoint.refuse_calls(leaving_error(self._task, reason, held))
            self.watched.stop()

        def leave(reason: str) -> None:
            if self.watched.is_serving:  # else another device was first, or the server stops
                self.watched.is_serving = False
                leaving.start(end(reason))

        abandoned = self.worker.abandoned
        if abandoned.limit_s == math.inf:
            abandoned.limit_s = RESTART_LIMIT_S
        abandoned.on_stuck = leave

    async def begin_with(self, members: MemberList | None) -> None:
        """Takes the list of members that the server begins with; None for its cluster."""
        if members is not None and members.epoch:
            await self.members.adopt(members.to_bytes())
        self.members.start()

    async def stop(self) -> None:
        if self._slow_steps is not None:
            self._slow_steps.stop()
        self.members.close()
        if self._leaving is not None:
            self._leaving.cancel()
        await self.listener.stop()
        await self.tasks.close()


async def start_server(
    task: Task,
    cluster: ClusterSpec,
    hosts: Sequence[str],
    transport: Transport,
    terms: ServerTerms,
    roots: AllowedDirectories,
    make_worker: Callable[..., Worker],
) -> RunningServer:
    if (action := async_failpoint("server.before_listen")) is not None:
        await action
    host, port = split_address(cluster.task_address(task.job, task.index))
    threads = ThreadPoolExecutor(
        _N_THREADS, thread_name_prefix=f"jflow {task}", initializer=take_64_bits
    )
    running = RunningServer(task, cluster, transport, terms, threads, roots, make_worker)
    bound = await running.listener.start(hosts, port)
    shown = f"[{host}]" if ":" in host else host
    running.set_cluster(cluster.replace(task, f"{shown}:{bound}"))
    return running
