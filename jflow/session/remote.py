"""Runs steps on a cluster, through the server that the session was opened on."""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from jflow import lowering
from jflow.cluster import Device, Task, split_address
from jflow.errors import AbortedError, CancelledError, InternalError
from jflow.graph.callbacks import Callback
from jflow.lowering.callbacks import refuse_callbacks
from jflow.partition import Partition, Segment
from jflow.placement import Inventory
from jflow.plan import Program
from jflow.session.backend import Array, DeviceInfo, Step
from jflow.session.config import ConfigProto
from jflow.wire import DeviceRecord, MasterClient

_MAX_OFFERS = 3
_RECONNECT_TIMEOUT_S = 2.0


class RemoteBackend:
    """A session on a cluster. It connects when it is first used.

    Args:
      target: "grpc://host:port".
      config: options; the connect timeout counts.
    """

    def __init__(self, target: str, config: ConfigProto) -> None:
        self.owner = secrets.token_hex(8)
        self._target = target
        self._timeout = config.connect_timeout_in_ms / 1000
        self._lock = threading.Lock()
        self._client: MasterClient | None = None
        self._is_closed = False
        self._devices: dict[Task, list[DeviceRecord]] = {}
        self._artifacts: dict[str, Array] = {}
        self._kept: dict[Task, Step] = {}

    def inventory(self) -> Inventory:
        welcome = self._connected().welcome
        return Inventory(welcome.task, tuple(welcome.cluster.tasks()), self._devices_of)

    def lower(self, segment: Segment) -> Program:
        refuse_callbacks(segment.ops)
        lowered = lowering.lower(
            segment.ops, segment.reads, segment.inputs, segment.writes, segment.outputs
        )
        code = lowering.export(lowered.jaxpr, self._platform(segment.device))
        digest, *constants = (self.keep(artifact) for artifact in (code, *lowered.constants))
        return Program(digest, tuple(constants), segment.donated)

    def keep(self, constant: Array) -> str:
        digest = lowering.digest_of(constant)
        self._artifacts[digest] = constant
        return digest

    def register(
        self, plans: Partition, n_fetches: int, callbacks: Sequence[Callback] = ()
    ) -> Step:
        needed = frozenset().union(*(plan.artifacts for plan in plans))
        artifacts = {digest: self._artifacts.pop(digest) for digest in needed}
        step = _RemoteStep(plans, n_fetches, artifacts, callbacks, self._timeout, self._connected)
        step.register()
        for plan in plans:
            if any(spec.owner for spec in plan.resources):
                # A task keeps what is the session's own while it has a step that uses it.
                self._kept.setdefault(plan.device.task, step)
        return step

    def list_devices(self) -> list[DeviceInfo]:
        client = self._connected()
        own = client.welcome.task
        tasks = sorted(client.welcome.cluster.tasks(), key=lambda task: (task != own, task))
        found = client.list_devices(tasks, 1.0, only_up=True)
        return [DeviceInfo(str(d.device), d.device.type, d.incarnation) for d in found]

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._kept.clear()
            if self._client is not None:
                self._client.close()

    def _connected(self) -> MasterClient:
        with self._lock:
            if self._is_closed:
                raise CancelledError("the session was closed")
            if self._client is None:
                self._client = MasterClient(_address(self._target), self._timeout)
            elif not self._client.is_open:
                self._client = self._reconnected(self._client)
            return self._client

    def _reconnected(self, lost: MasterClient) -> MasterClient:
        """A connection in place of one that broke, to the same life of the server."""
        client = MasterClient(_address(self._target), min(self._timeout, _RECONNECT_TIMEOUT_S))
        if client.welcome.incarnation != lost.welcome.incarnation:
            client.close()
            raise AbortedError(
                f"Session is not found: {client.welcome.task} at {self._target} has restarted; "
                "open a new session",
                task=str(client.welcome.task),
            )
        return client

    def _devices_of(self, task: Task) -> tuple[Device, ...]:
        if task not in self._devices:
            self._devices[task] = self._connected().list_devices([task], self._timeout)
        return tuple(record.device for record in self._devices[task])

    def _platform(self, device: Device) -> str:
        (platform,) = (d.platform for d in self._devices[device.task] if d.device == device)
        return platform


def _release(registered: list[tuple[MasterClient, int]]) -> None:
    """Has the cluster forget a step that nobody can run any more."""
    for client, handle in registered:
        client.release(handle)


class _RemoteStep:
    """A step that is registered with the master, again if the connection was made anew."""

    def __init__(
        self,
        plans: Partition,
        n_fetches: int,
        artifacts: dict[str, Array],
        callbacks: Sequence[Callback],
        timeout: float,
        connected: Callable[[], MasterClient],
    ) -> None:
        self._plans = plans
        self._n_fetches = n_fetches
        self._artifacts = artifacts
        self._callbacks = callbacks
        self._timeout = timeout
        self._connected = connected
        self._lock = threading.Lock()
        self._registered: list[tuple[MasterClient, int]] = []
        # The list, for it must not keep this step.
        weakref.finalize(self, _release, self._registered).atexit = False

    def run(self, feeds: Sequence[Array], timeout: float | None) -> list[Array]:
        client, handle = self.register()
        return client.run(handle, feeds, timeout, self._callbacks)

    def start(self, feeds: Sequence[Array], timeout: float | None) -> Future[list[Array]]:
        client, handle = self.register()
        return client.start(handle, feeds, timeout, self._callbacks)

    def compute(self, feeds: Sequence[Any], timeout: float | None) -> list[jax.Array]:
        values = self.run([_narrowed(np.asarray(feed)) for feed in feeds], timeout)
        # What came in has its memory to itself, which JAX takes over.
        return [jax.device_put(value) for value in values]

    def register(self) -> tuple[MasterClient, int]:
        """The present connection and the step's handle there."""
        client = self._connected()
        with self._lock:
            if not self._registered or self._registered[0][0] is not client:
                self._registered[:] = [(client, self._offer(client))]
            return self._registered[0]

    def _offer(self, client: MasterClient) -> int:
        """Registers the plans; sends along only what the cluster does not have yet."""
        sent: dict[str, Array] = {}
        for _ in range(_MAX_OFFERS):
            registered = client.register(self._plans, self._n_fetches, sent, self._timeout)
            if not registered.missing:
                return registered.handle
            sent |= {digest: self._artifacts[digest] for digest in registered.missing}
        raise InternalError(f"the cluster asks for {registered.missing} again and again")


def _narrowed(array: Array) -> Array:
    """The array in the dtype that JAX gives it, which depends on `jax_enable_x64` here."""
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def reset_containers(target: str, containers: Sequence[str], config: ConfigProto) -> None:
    """Frees containers on every task of a cluster and ends the sessions of one server."""
    client = MasterClient(_address(target), config.connect_timeout_in_ms / 1000)
    try:
        client.reset(containers)
    finally:
        client.close()


def _address(target: str) -> str:
    host, port = split_address(target)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
