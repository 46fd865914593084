"""Runs steps on a cluster, through the server that the session was opened on."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from jflow import lowering
from jflow.cluster import Device, Task, split_address
from jflow.errors import CancelledError, InternalError
from jflow.partition import Partition, Segment
from jflow.placement import Inventory
from jflow.plan import Program
from jflow.session.backend import Array, DeviceInfo, Step
from jflow.session.config import ConfigProto
from jflow.wire import DeviceRecord, MasterClient, Registered

_MAX_OFFERS = 3


class RemoteBackend:
    """A session on a cluster. It connects when it is first used.

    Args:
      target: "grpc://host:port".
      config: options; the connect timeout counts.
    """

    def __init__(self, target: str, config: ConfigProto) -> None:
        self._target = target
        self._timeout = config.connect_timeout_in_ms / 1000
        self._lock = threading.Lock()
        self._client: MasterClient | None = None
        self._is_closed = False
        self._devices: dict[Task, list[DeviceRecord]] = {}
        self._artifacts: dict[str, Array] = {}

    def inventory(self) -> Inventory:
        welcome = self._connected().welcome
        return Inventory(welcome.task, tuple(welcome.cluster.tasks()), self._devices_of)

    def lower(self, segment: Segment) -> Program:
        lowered = lowering.lower(
            segment.ops, segment.reads, segment.inputs, segment.writes, segment.outputs
        )
        code = lowering.export(lowered.jaxpr, self._platform(segment.device))
        digest, *constants = (self._keep(artifact) for artifact in (code, *lowered.constants))
        return Program(digest, tuple(constants), segment.donated)

    def register(self, plans: Partition, n_fetches: int) -> Step:
        client = self._connected()
        handle = self._offer(client, plans, n_fetches).handle

        def run(feeds: Sequence[Array], timeout: float | None) -> list[Array]:
            return client.run(handle, feeds, timeout)

        return run

    def list_devices(self) -> list[DeviceInfo]:
        client = self._connected()
        own = client.welcome.task
        tasks = sorted(client.welcome.cluster.tasks(), key=lambda task: (task != own, task))
        found = client.list_devices(tasks, 1.0, only_up=True)
        return [DeviceInfo(str(d.device), d.device.type, d.incarnation) for d in found]

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._client is not None:
                self._client.close()

    def _connected(self) -> MasterClient:
        with self._lock:
            if self._is_closed:
                raise CancelledError("the session was closed")
            if self._client is None:
                host, port = split_address(self._target)
                shown = f"[{host}]" if ":" in host else host
                self._client = MasterClient(f"{shown}:{port}", self._timeout)
            return self._client

    def _devices_of(self, task: Task) -> tuple[Device, ...]:
        if task not in self._devices:
            self._devices[task] = self._connected().list_devices([task], self._timeout)
        return tuple(record.device for record in self._devices[task])

    def _platform(self, device: Device) -> str:
        (platform,) = (d.platform for d in self._devices[device.task] if d.device == device)
        return platform

    def _keep(self, artifact: Array) -> str:
        digest = lowering.digest_of(artifact)
        self._artifacts[digest] = artifact
        return digest

    def _offer(self, client: MasterClient, plans: Partition, n_fetches: int) -> Registered:
        """Registers plans; sends along only what the cluster does not have yet."""
        sent: dict[str, Array] = {}
        try:
            for _ in range(_MAX_OFFERS):
                registered = client.register(plans, n_fetches, sent, self._timeout)
                if not registered.missing:
                    return registered
                sent |= {digest: self._artifacts[digest] for digest in registered.missing}
        finally:
            for digest in frozenset().union(*(plan.artifacts for plan in plans)):
                self._artifacts.pop(digest, None)
        raise InternalError(f"the cluster asks for {registered.missing} again and again")


def reset_containers(target: str, containers: Sequence[str], config: ConfigProto) -> None:
    """Frees containers on every task of a cluster and ends the sessions of one server."""
    host, port = split_address(target)
    client = MasterClient(f"{host}:{port}", config.connect_timeout_in_ms / 1000)
    try:
        client.reset(containers)
    finally:
        client.close()
