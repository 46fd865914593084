"""Runs steps on a cluster, through the server that the session was opened on."""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from jflow import _forks, lowering, xla
from jflow.cluster import Device, Task, join_address, split_address
from jflow.deadline import Deadline
from jflow.errors import AbortedError, CancelledError, InternalError
from jflow.graph import VariableRef
from jflow.graph.callbacks import Callback
from jflow.lowering.callbacks import refuse_callbacks
from jflow.partition import Partition, Segment
from jflow.placement import Inventory
from jflow.plan import Program
from jflow.protocol import DeviceRecord, MasterClient
from jflow.runtime.backend import Array, DeviceInfo, Step
from jflow.runtime.config import ConfigProto
from jflow.wire import connect

_MAX_OFFERS = 3
_RECONNECT_TIMEOUT_S = 2.0
_LOOK_S = 1.0
"""How long `list_devices` waits for a task, in seconds."""


@_forks.guarded("inventory", "lower", "register", "list_devices", ignored=("close",))
class RemoteBackend:
    """A session on a cluster. It connects when it is first used.

    Args:
      target: "grpc://host:port".
      config: options; the connect timeout counts.
    """

    keeps_weak_types = False  # arrays cross the wire as NumPy has them

    def __init__(self, target: str, config: ConfigProto) -> None:
        _forks.mark_used()
        self.owner = secrets.token_hex(8)
        self._target = target
        self._connect_timeout = config.connect_timeout_in_ms / 1000
        self._lock = threading.Lock()
        self._client: MasterClient | None = None
        self._is_closed = False
        self._devices: dict[Task, list[DeviceRecord]] = {}
        self._artifacts: dict[str, Array] = {}
        self._kept: dict[Task, Step] = {}

    def inventory(self, deadline: Deadline) -> Inventory:
        info = self.connected(deadline).info
        tasks = tuple(info.cluster.tasks())
        return Inventory(info.task, tasks, lambda task: self._devices_of(task, deadline))

    def lower(self, segment: Segment) -> Program:
        refuse_callbacks(segment.ops)
        lowered = lowering.lower(
            segment.ops, segment.reads, segment.inputs, segment.writes, segment.outputs
        )
        platform = self._platform(segment.device)
        with lowering.explained(segment.ops, platform):
            code = lowering.export(lowered.jaxpr, platform)
        digest, *constants = (self.keep(artifact) for artifact in (code, *lowered.constants))
        return Program(digest, tuple(constants), segment.donated)

    def keep(self, constant: Array) -> str:
        digest = xla.digest_of(constant)
        self._artifacts[digest] = constant
        return digest

    def register(
        self, plans: Partition, n_fetches: int, callbacks: Sequence[Callback] = ()
    ) -> Step:
        needed = frozenset().union(*(plan.artifacts for plan in plans))
        artifacts = {digest: self._artifacts.pop(digest) for digest in needed}
        return _RemoteStep(plans, n_fetches, artifacts, callbacks, self)

    def offer(self, step: _RemoteStep, client: MasterClient, deadline: Deadline) -> int:
        """Registers a step on the cluster; returns its handle there."""
        handle = step.offer(client, self._connect_timeout, deadline)
        for plan in step.plans:
            if any(spec.owner for spec in plan.resources):
                # A task keeps what is the session's own while it has a step that uses it.
                self._kept.setdefault(plan.device.task, step)
        return handle

    def peek(self, _: VariableRef) -> None:
        return None  # asking the server may take any time

    def list_devices(self, deadline: Deadline) -> list[DeviceInfo]:
        client = self.connected(deadline)
        own = client.info.task
        tasks = sorted(client.info.cluster.tasks(), key=lambda task: (task != own, task))
        found = client.list_devices(tasks, _LOOK_S, deadline, only_up=True)
        return [DeviceInfo(str(d.device), d.device.type, d.incarnation) for d in found]

    def close(self) -> None:
        # Without the lock, which a thread that is connecting holds: it looks at `_is_closed` after
        # it has set `_client`, and this thread the other way round, so one of them closes it.
        self._is_closed = True
        self._kept.clear()
        client = self._client
        if client is not None:
            client.close()

    def connected(self, deadline: Deadline) -> MasterClient:
        """The connection; makes it, or makes it again, by the deadline."""
        client = self._client
        if client is not None and client.is_open and not self._is_closed:
            return client
        limit = deadline.while_connecting(self._connect_timeout)
        with limit.holding(self._lock, f"connecting to the server at {_address(self._target)}"):
            self._check_open()
            client = self._client
            if client is None:
                client = connect(_address(self._target), self._connect_timeout, limit)
            elif not client.is_open:
                client = self._reconnected(client, limit)
            self._client = client
            if self._is_closed:
                client.close()
            self._check_open()
            return client

    def _check_open(self) -> None:
        if self._is_closed:
            raise CancelledError("the session was closed")

    def _reconnected(self, lost: MasterClient, deadline: Deadline) -> MasterClient:
        """A connection in place of one that broke, to the same life of the server."""
        timeout = min(self._connect_timeout, _RECONNECT_TIMEOUT_S)
        client = connect(_address(self._target), timeout, deadline)
        if client.info.incarnation != lost.info.incarnation:
            client.close()
            raise AbortedError(
                f"Session is not found: {client.info.task} at {self._target} has restarted; "
                "open a new session",
                task=str(client.info.task),
            )
        return client

    def _devices_of(self, task: Task, deadline: Deadline) -> tuple[Device, ...]:
        if task not in self._devices:
            client = self.connected(deadline)
            self._devices[task] = client.list_devices([task], self._connect_timeout, deadline)
        return tuple(record.device for record in self._devices[task])

    def _platform(self, device: Device) -> str:
        (platform,) = (d.platform for d in self._devices[device.task] if d.device == device)
        return platform


def _release(registered: list[tuple[MasterClient, int]]) -> None:
    """Has the cluster forget a step that nobody can run any more."""
    for client, handle in registered:
        client.release(handle)


@_forks.guarded("prepare", "run", "start", "compute")
class _RemoteStep:
    """A step that registers itself with the master, again if the connection was made anew."""

    def __init__(
        self,
        plans: Partition,
        n_fetches: int,
        artifacts: dict[str, Array],
        callbacks: Sequence[Callback],
        backend: RemoteBackend,
    ) -> None:
        self.plans = plans
        self._n_fetches = n_fetches
        self._artifacts = artifacts
        self._callbacks = callbacks
        self._backend = backend
        self._lock = threading.Lock()
        self._registered: list[tuple[MasterClient, int]] = []
        # The list, for it must not keep this step.
        weakref.finalize(self, _release, self._registered).atexit = False

    def prepare(self, deadline: Deadline) -> None:
        self._register(deadline)

    def run(self, feeds: Sequence[Array], deadline: Deadline) -> list[Array]:
        client, handle = self._register(deadline)
        return client.run(handle, feeds, deadline, self._callbacks)

    def start(self, feeds: Sequence[Array], deadline: Deadline) -> Future[list[Array]]:
        client, handle = self._register(deadline)
        return client.start(handle, feeds, deadline)

    def compute(self, feeds: Sequence[Any], deadline: Deadline) -> list[jax.Array]:
        values = self.run([_narrowed(np.asarray(feed)) for feed in feeds], deadline)
        # What came in has its memory to itself, which JAX takes over.
        return [jax.device_put(value) for value in values]

    def offer(self, client: MasterClient, connect_timeout: float, deadline: Deadline) -> int:
        """Registers the plans; sends along only what the cluster does not have yet."""
        sent: dict[str, Array] = {}
        for _ in range(_MAX_OFFERS):
            registered = client.register(
                self.plans, self._n_fetches, sent, connect_timeout, deadline
            )
            if not registered.missing:
                return registered.handle
            sent |= {digest: self._artifacts[digest] for digest in registered.missing}
        raise InternalError(f"the cluster asks for {registered.missing} again and again")

    def _register(self, deadline: Deadline) -> tuple[MasterClient, int]:
        """The present connection and the step's handle there."""
        client = self._backend.connected(deadline)
        # Set as a whole and never emptied, so that it can be read without the lock.
        if self._registered and self._registered[0][0] is client:
            return self._registered[0]
        with deadline.holding(self._lock, "waiting for the step to be registered"):
            if not self._registered or self._registered[0][0] is not client:
                self._registered[:] = [(client, self._backend.offer(self, client, deadline))]
            return self._registered[0]


def _narrowed(array: Array) -> Array:
    """The array in the dtype that JAX gives it, which depends on `jax_enable_x64` here."""
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def reset_containers(
    target: str, containers: Sequence[str], config: ConfigProto, deadline: Deadline
) -> None:
    """Frees containers on every task of a cluster and ends the sessions of one server."""
    connect_timeout = config.connect_timeout_in_ms / 1000
    client = connect(_address(target), connect_timeout, deadline)
    try:
        client.reset(containers, connect_timeout, deadline)
    finally:
        client.close()


def _address(target: str) -> str:
    return join_address(*split_address(target))
