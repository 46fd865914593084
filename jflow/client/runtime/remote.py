"""The backend of a cluster, which is reached through one server of it, the master."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from jflow.base import forks
from jflow.base.cluster import (
    ClusterSpec,
    Device,
    DeviceFilters,
    Target,
    Task,
    Wiring,
    split_address,
)
from jflow.base.deadline import Deadline
from jflow.base.failpoints import failpoint
from jflow.base.options import ConfigProto, SessionDefaults
from jflow.client.recording import SessionRecorder, recorder_of
from jflow.client.runtime.backend import DeviceInfo, Executable, with_meshes
from jflow.client.runtime.isolation import Isolation
from jflow.client.runtime.members import KnownMembers, read_members, visible_tasks
from jflow.client.runtime.remote_step import Numbering, RemoteExecutable
from jflow.client.runtime.restarts import Restarts
from jflow.client.runtime.saving import path_on_tasks
from jflow.compiler.graph import VariableRef
from jflow.compiler.pipeline import CompiledStep
from jflow.compiler.placement import Inventory
from jflow.errors import (
    CancelledError,
    OpError,
    RestartedError,
    UnavailableError,
    UnimplementedError,
)
from jflow.net.protocol import DeviceRecord, MasterClient, MasterSession, ServerInfo, WatchedCluster
from jflow.net.protocol.call_notices import described
from jflow.net.wire import connect
from jflow.net.wire.running_ups import page_of
from jflow.plan.trace.measured import NO_NAMES
from jflow.state.core import ClusterState
from jflow.state.fencing import Claim
from jflow.state.members import MemberList
from jflow.state.moves import StateId, states_of
from jflow.state.saves import StateItems, by_task
from jflow.state.watch import (
    MAX_ITEMS,
    ContainerStatus,
    CoordinatorStatus,
    SessionWait,
    StatusRequest,
    VariableStatus,
)

_RECONNECT_TIMEOUT_S = 2.0
_MAX_RESTARTS = 10
"""The number of restarts that the registration of one step survives."""
_LIST_TIMEOUT_S = 1.0
"""How long `list_devices` waits for each task, in seconds."""


R = TypeVar("R")


@forks.guarded(
    "call_state",
    "inventory",
    "register",
    "claim",
    "move_state",
    "list_devices",
    ignored=("close",),
)
class RemoteBackend:
    """Runs steps on a cluster; connects to the server at first use.

    Args:
      target: as for `Target.parse`.
      config: options, of which the connect timeout, the device filters and the isolation of state
        are used.
    """

    has_one_device = True
    keeps_weak_types = False  # arrays are sent as NumPy arrays, which have none
    tasks_leave = True
    moves_private = False  # a task frees what is not shared with the last step that uses it there

    def __init__(self, target: str, config: ConfigProto) -> None:
        forks.mark_used()
        self.owner = secrets.token_hex(8)
        self._target = target
        self._meant = Target.parse(target)
        self._apply(config)
        self._lock = threading.Lock()
        self._client: MasterClient | None = None
        self._is_closed = False
        self.reconnects = True
        self.restarts = Restarts()
        self._members = KnownMembers()
        self._devices: dict[Task, Sequence[DeviceRecord]] = {}
        self._query_steps: dict[Task, Executable] = {}
        self._steps: WeakValueDictionary[int, RemoteExecutable] = WeakValueDictionary()
        self._claim: Claim | None = None
        self.numbering = Numbering(self.owner)
        path, limit_bytes = config.record, config.record_limit_bytes
        self.recording = SessionRecorder(recorder_of(path, limit_bytes)) if path else None

    def inventory(self, tasks: Collection[Task], deadline: Deadline) -> Inventory:
        own, members = self.connection(deadline).info.task, self.members(deadline)
        all_devices = [record for group in self._devices_of(tasks, deadline) for record in group]
        devices: dict[Task, list[Device]] = {task: [] for task in tasks}
        for record in all_devices:
            devices[record.device.task].append(record.device)
        platforms = {record.device: record.platform for record in all_devices}
        cluster, state_task = members.cluster, Task.parse(members.state_task)
        every = tuple(visible_tasks(own, cluster, self._filters))
        memory = {d.device: d.memory_limit_bytes for d in all_devices if d.memory_limit_bytes}
        return Inventory(
            own,
            every,
            devices,
            platforms,
            self._wiring(own, cluster),
            memory,
            state_task if state_task in every else None,
            members.left,
        )

    def members(self, deadline: Deadline) -> MemberList:
        """Returns the members of the cluster, as they were a second ago at the latest."""
        return self._members.of(self.connection(deadline), deadline)

    def forget_members(self) -> None:
        self._members.forget()

    def _visible_tasks(self, deadline: Deadline) -> list[Task]:
        own = self.connection(deadline).info.task
        return visible_tasks(own, self.members(deadline).cluster, self._filters)

    def _wiring(self, own: Task, cluster: ClusterSpec) -> Wiring:
        """Returns how tasks reach each other; those with equal hosts in addresses are near."""
        addresses = {task: cluster.task_address(task.job, task.index) for task in cluster.tasks()}
        hosts = {task: split_address(address)[0] for task, address in addresses.items()}
        return Wiring(self._target.partition("://")[0], hosts, own)

    def register(self, compiled: CompiledStep) -> Executable:
        own = compiled if self._isolation is None else self._isolation.step(compiled)
        return RemoteExecutable(own, self)

    def offer(self, step: RemoteExecutable, client: MasterClient, deadline: Deadline) -> int:
        """Registers a step with the master and returns its handle."""
        if self.recording is not None:
            every = partial(self._all_variables, deadline)
            self.recording.joined(client, every, self._connect_timeout, deadline)
        tasks, n_left = {plan.device.task for plan in step.plans}, _MAX_RESTARTS
        while True:
            restarted_tasks = self.restarts.known(tasks)
            try:
                handle = step.offer(client, self._connect_timeout, deadline, restarted_tasks)
                break
            except RestartedError as error:
                self.outlive(error, is_rolled_back=True)
                n_left -= 1
                if not n_left:
                    raise
        self.restarts.uses(step.plans, client.info.task)
        self._steps[handle] = step
        for plan in step.plans:
            if any(state.session == self.owner for state in states_of([plan])):
                # A task frees the state of a session with its last step that uses it, so one step
                # per task is kept alive.
                self._query_steps.setdefault(plan.device.task, step)
        return handle

    def outlive(self, error: RestartedError, *, is_rolled_back: bool) -> None:
        """Makes steps register again on a task that has restarted. Raises as `Restarts.go_on`."""
        if self.restarts.are_outlived and error.task is not None:
            task = Task.parse(error.task)
            self._devices.pop(task, None)
            for step in [*self._steps.values()]:
                step.forget(task)
        self.restarts.go_on(error, is_rolled_back=is_rolled_back)

    def complete_options(self, config: ConfigProto, deadline: Deadline) -> ConfigProto:
        return _completed_options(config, self.connection(deadline).info)

    def incarnation(self, deadline: Deadline) -> int:
        return self.connection(deadline).info.incarnation

    def call_state(
        self, method: Callable[..., Coroutine[Any, Any, R]], *args: Any, deadline: Deadline
    ) -> R:
        return self.connection(deadline).call(method, *args, self._connect_timeout, deadline)

    def claim(self, name: str, epoch: int, deadline: Deadline) -> int:
        own = self.call_state(ClusterState.claim, name, epoch, deadline=deadline)
        self._claim = Claim(name, own)
        return own

    def move_state(
        self, states: Sequence[StateId], target: str, hold_s: float, deadline: Deadline
    ) -> None:
        if self._isolation is not None:
            raise UnimplementedError(
                "the state of an isolated session cannot move, because a task frees it with the "
                "last step that uses it there; open the session without isolate_session_state"
            )
        if self.recording is not None:
            raise UnimplementedError(
                "the state of a recorded session cannot move, because run logs do not say where "
                "it was when; open the session without ConfigProto.record"
            )
        self.call_state(ClusterState.move, states, target, hold_s, deadline=deadline)

    def to_tasks(self, prefix: str, items: StateItems, deadline: Deadline) -> tuple[str, bytes]:
        tasks = list(by_task(items))
        groups = zip(tasks, self._devices_of(tasks, deadline), strict=True)
        path = path_on_tasks(prefix, {task: of[0].file_system for task, of in groups if of})
        own = items if self._isolation is None else self._isolation.items(items)
        return path, own.to_bytes()

    def was_restored(self, items: StateItems, deadline: Deadline) -> None:
        if self.recording is not None:
            names = {item.name for item in items.items}
            variables = (one for one in self._all_variables(deadline) if one.name in names)
            client = self.connection(deadline)
            self.recording.read_values(client, variables, self._connect_timeout, deadline)

    def peek(self, _: VariableRef) -> None:
        return None  # a request to the server could block

    def default_device(self, _: Iterable[Any]) -> None:
        return None  # arrays of this process say nothing about devices of others

    def list_devices(self, deadline: Deadline) -> list[DeviceInfo]:
        client = self.connection(deadline)
        own = client.info.task
        tasks = sorted(self._visible_tasks(deadline), key=lambda task: (task != own, task))
        groups = client.call(MasterSession.list_devices, tasks, _LIST_TIMEOUT_S, True, deadline)
        return with_meshes(
            DeviceInfo(
                str(d.device),
                d.device.type,
                d.incarnation,
                d.transport or client.transport,
                d.memory_limit_bytes,
            )
            for d in groups
            if d.device.task == own or self._filters.see(d.device)
        )

    def containers(self, deadline: Deadline) -> Mapping[Task, Sequence[ContainerStatus]]:
        client = self.connection(deadline)
        request, tasks = StatusRequest(("containers",)), self._visible_tasks(deadline)
        inspect = WatchedCluster.inspect
        reports = client.call(inspect, request, sorted(tasks), _LIST_TIMEOUT_S, deadline)
        return {
            report.task: report.status.containers for report in reports if report.status is not None
        }

    def sharding_of(self, ref: VariableRef, deadline: Deadline) -> str:
        device = Device.parse(str(ref.spec))
        tasks = self._visible_tasks(deadline)
        moved = ""
        # One that is not where it was made has moved to another mesh, perhaps of another task.
        for some in ([device.task], sorted(task for task in tasks if task != device.task)):
            for one in self._variables_on(some, deadline):
                if (one.container, one.name) == (ref.container, ref.name):
                    if one.device == str(device):
                        return one.sharding
                    moved = moved or one.sharding
        return moved

    def _variables_on(self, tasks: Sequence[Task], deadline: Deadline) -> Iterator[VariableStatus]:
        """Yields the variables of those tasks that answer."""
        first, n_variables = 0, 1
        while first < n_variables and tasks:
            request = StatusRequest(("variables",), first)
            inspect = WatchedCluster.inspect
            client = self.connection(deadline)
            reports = client.call(inspect, request, tasks, _LIST_TIMEOUT_S, deadline)
            found = [report.status for report in reports if report.status is not None]
            for status in found:
                yield from status.variables
            n_variables = max((one.totals.get("variables", 0) for one in found), default=0)
            first += MAX_ITEMS

    def _all_variables(self, deadline: Deadline) -> Iterator[VariableStatus]:
        """Yields the variables of all tasks that answer."""
        return self._variables_on(self._visible_tasks(deadline), deadline)

    def page(self) -> str:
        return page_of([f"grpc://{self._meant.address}"])

    def publish_coordinator(self, status: CoordinatorStatus | None, deadline: Deadline) -> None:
        client = self.connection(deadline)
        packed = b"" if status is None else status.to_bytes()
        client.call(MasterSession.publish_coordinator, packed, deadline)

    def close(self) -> None:
        # Without the lock, which a connecting thread holds. That thread sets `_client` and then
        # reads `_is_closed`; this one sets `_is_closed` and then reads `_client`. So at least one
        # of them sees both and closes the client.
        if self.recording is not None and not self._is_closed:
            self.recording.leave()
        self._is_closed = True
        self._query_steps.clear()
        client = self._client
        if client is not None:
            client.close()

    @property
    def is_lost(self) -> bool:
        client = self._client
        return client is not None and not client.is_open

    def connection(self, deadline: Deadline) -> MasterClient:
        """Returns the connection to the master; connects, or reconnects, if necessary."""
        client = self._client
        if client is not None and client.is_open and not self._is_closed:
            return client
        if client is not None and not self.reconnects and not self._is_closed:
            task = client.info.task
            raise UnavailableError(f"the connection to {task} was lost", task=str(task))
        limit = deadline.while_connecting(self._connect_timeout)
        with limit.holding(self._lock, f"connecting to the server at {self._meant.address}"):
            self._check_open()
            client = self._client
            if client is None:
                client = connect(self._meant, self._connect_timeout, limit)
                try:
                    self._apply(_completed_options(self._config, client.info))
                except OpError:
                    client.close()
                    raise
            elif not client.is_open:
                client = self._reconnect(client, limit)
            if client is not self._client:
                self._steps = WeakValueDictionary()  # their handles are of the former connection
                self._query_steps.clear()
                client.notices.describe = self._describe_wait
            self._client = client
            if self._is_closed:
                client.close()
            self._check_open()
            return client

    def _apply(self, config: ConfigProto) -> None:
        self._config = config
        self._connect_timeout = config.connect_timeout_in_ms / 1000
        self._filters = DeviceFilters(config.device_filters)
        self._isolation = Isolation(self.owner) if config.isolate_session_state else None

    def _describe_wait(self, one: SessionWait) -> str:
        """Describes what a step waits for, by the names of its graph."""
        step = self._steps.get(one.handle)
        names = NO_NAMES if step is None else step.names
        edge = None if one.wait.edge is None else names.edges.get(one.wait.edge)
        return described(one, names.op_text, "" if edge is None else edge.name)

    def _check_open(self) -> None:
        if self._is_closed:
            raise CancelledError("the session is closed")

    def _reconnect(self, lost: MasterClient, deadline: Deadline) -> MasterClient:
        """Connects to the server again. Raises AbortedError if it is another incarnation."""
        failpoint("client.before_reconnect")
        lost.close()  # its stream has ended; the thread that sends to it has not
        timeout = min(self._connect_timeout, _RECONNECT_TIMEOUT_S)
        task = lost.info.task
        expected_server = replace(self._meant, task=task, incarnation=lost.info.incarnation)
        try:
            client = _connect_twice(expected_server, timeout, deadline)
        except RestartedError as error:
            if not self.restarts.are_outlived:
                raise RestartedError(
                    f"Session is not found: {task} at {self._target} has restarted; open a new "
                    "session",
                    task=str(task),
                ) from None
            self.outlive(error, is_rolled_back=True)
            client = _connect_twice(replace(expected_server, incarnation=0), timeout, deadline)
        except OpError as error:
            error.with_context(task=str(task))
            raise
        if self._claim is not None:
            client.call(ClusterState.claim, self._claim.name, self._claim.epoch, timeout, deadline)
        return client

    def _devices_of(
        self, tasks: Collection[Task], deadline: Deadline
    ) -> list[Sequence[DeviceRecord]]:
        """Returns the devices of each task; queries those it does not know in one call."""
        client = self.connection(deadline)
        self._devices.setdefault(client.info.task, client.info.devices)
        unknown = sorted(task for task in tasks if task not in self._devices)
        if unknown:
            groups = client.call(
                MasterSession.list_devices, unknown, self._connect_timeout, False, deadline
            )
            visible_records = [record for record in groups if self._filters.see(record.device)]
            for task in unknown:
                self._devices[task] = [
                    record for record in visible_records if record.device.task == task
                ]
        return [self._devices[task] for task in tasks]


def _completed_options(config: ConfigProto, info: ServerInfo) -> ConfigProto:
    """Fills unset options from the server's defaults. Raises InvalidArgumentError if invalid."""
    default_bytes = info.session_defaults
    return SessionDefaults.from_bytes(default_bytes).fill(config) if default_bytes else config


def _connect_twice(meant: Target, timeout: float, deadline: Deadline) -> MasterClient:
    """Connects; retries once if the connection fails during the handshake.

    Raises as `connect`.
    """
    patience = Deadline(timeout)
    try:
        return connect(meant, timeout, deadline)
    except UnavailableError:
        if not patience.remaining():
            raise
    return connect(meant, patience.remaining() or 0.0, deadline)


def reset_containers(
    target: str, containers: Sequence[str], config: ConfigProto, deadline: Deadline
) -> None:
    """Frees containers on the tasks that the filters leave; closes all sessions of the server."""
    connect_timeout = config.connect_timeout_in_ms / 1000
    filters = DeviceFilters(config.device_filters)
    client = connect(target, connect_timeout, deadline)
    try:
        cluster = read_members(client, deadline).cluster
        tasks = visible_tasks(client.info.task, cluster, filters) if filters.texts else []
        client.call(MasterSession.reset, containers, connect_timeout, deadline, tasks)
    finally:
        client.close()
