"""Records that the services exchange, and their conversion to protobuf."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jflow.base.cluster import ClusterSpec, Device, Task
from jflow.base.values import Array
from jflow.base.versions import VERSION
from jflow.errors import InternalError
from jflow.net.protocol.offers import OFFER_NONCE_BYTES, DataOffer
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.state.effects import Effect
from jflow.state.fencing import Claim
from jflow.state.quotas import ChargedSession

Artifacts = Mapping[str, Array]
"""Programs (as u8 arrays) and constants by digest."""

Client = Callable[[int, Sequence[Array], "Future[Sequence[Array]]"], Awaitable[None]]
"""Calls a function of a step's client.

Takes the number of the function, its operands, and a future for the results or an OpError.
"""


@dataclass(frozen=True)
class DeviceRecord:
    """A device of a task.

    Attributes:
      device: the device.
      platform: its platform, as `jax.export` names it.
      incarnation: the incarnation of its process.
      transport: what carries messages between its task and the server that reports it, "grpc",
        "unix", "tcp" or "inproc"; "" if they are the same.
      memory_limit_bytes: the memory that it can use; 0 if that is not known.
      file_system: identifies the file system that its task sees; "" if that is not known.
    """

    device: Device
    platform: str
    incarnation: int
    transport: str = field(default="", compare=False)
    memory_limit_bytes: int = 0
    file_system: str = ""


@dataclass(frozen=True)
class ServerInfo:
    """A server's description of itself in the handshake.

    Attributes:
      task: the task of the server.
      incarnation: identifies this run of its process.
      cluster: the cluster as the server knows it.
      devices: its own devices, accelerators first.
      n_compiled: the number of programs that it has compiled.
      session_defaults: a packed `SessionDefaults`; b"" for the usual options.
      data_offer: of a data stream for this caller.
      successors: the tasks that have what was on tasks which have left, by these; not sent.
    """

    task: Task
    incarnation: int
    cluster: ClusterSpec
    devices: tuple[DeviceRecord, ...]
    n_compiled: int
    session_defaults: bytes = b""
    data_offer: DataOffer | None = field(default=None, compare=False, repr=False)
    successors: Mapping[Task, Task] = field(default_factory=dict, compare=False, repr=False)

    @property
    def tasks(self) -> list[Task]:
        """The tasks of its cluster."""
        return [*self.cluster.tasks()]

    @property
    def device_names(self) -> list[str]:
        """The full names of its devices."""
        return [str(record.device) for record in self.devices]

    def over(self, transport: str) -> ServerInfo:
        """Returns a copy whose devices name the transport to the server."""
        return replace(self, devices=tuple(replace(d, transport=transport) for d in self.devices))


@dataclass(frozen=True)
class StepOwner:
    """Whose step registered plans are of: a client's session on the task of their master.

    Attributes:
      claim: under which the client works; None if it has claimed nothing.
      session: its number in the list of sessions.
      user: whose token the client has; "" if that of the cluster.
    """

    claim: Claim | None = None
    session: int = 0
    user: str = ""

    def charged(self, master: Task) -> ChargedSession:
        """Returns the session that is charged for what its steps make, given its master."""
        return ChargedSession(str(master), self.session, self.user)


UNKNOWN_OWNER = StepOwner()
"""Of plans whose master does not say more."""


@dataclass(frozen=True)
class Registered:
    """The handle of registered plans, or the digests of missing artifacts to send again with them.

    Attributes:
      n_bytes: the size of what they fetch of the results of programs, as far as that is known
        before they run.
    """

    handle: int
    missing: tuple[str, ...] = ()
    n_bytes: int = 0


@dataclass(frozen=True)
class Piggybacked:
    """Values that plans send to the calling task with the reply to its call.

    Attributes:
      caller: the task.
      values: the values by edge; None for signals. The run of the plans fills it.
    """

    caller: Task
    values: dict[int, Array | None] = field(default_factory=dict)


def owner_from_proto(message: pb.RegisterPlans) -> StepOwner:
    """Returns the owner of plans. Raises InvalidArgumentError as `Claim`."""
    claim = Claim(message.claim.name, message.claim.epoch) if message.HasField("claim") else None
    return StepOwner(claim, message.owner.session, message.owner.user)


def device_to_proto(record: DeviceRecord) -> pb.Device:
    """Converts a device to protobuf."""
    return pb.Device(
        name=str(record.device),
        platform=record.platform,
        incarnation=record.incarnation,
        transport=record.transport,
        memory_limit_bytes=record.memory_limit_bytes,
        file_system=record.file_system,
    )


def device_from_proto(message: pb.Device) -> DeviceRecord:
    """Converts a device from protobuf. Raises ValueError if its name is malformed."""
    device = Device.parse(message.name)
    return DeviceRecord(
        device,
        message.platform,
        message.incarnation,
        message.transport,
        message.memory_limit_bytes,
        message.file_system,
    )


def info_to_proto(info: ServerInfo) -> pb.ServerInfo:
    """Converts server info to protobuf."""
    cluster, offer = info.cluster, info.data_offer
    return pb.ServerInfo(
        task=str(info.task),
        incarnation=info.incarnation,
        cluster={str(t): cluster.task_address(t.job, t.index) for t in cluster.tasks()},
        devices=[device_to_proto(device) for device in info.devices],
        n_compiled=info.n_compiled,
        session_defaults=info.session_defaults,
        data_offer=None if offer is None else pb.DataOffer(**vars(offer)),
        newest_version=VERSION,
    )


def info_from_proto(message: pb.ServerInfo) -> ServerInfo:
    """Converts server info from protobuf. Raises InternalError if it is malformed."""
    try:
        return _info(message)
    except (TypeError, ValueError) as error:
        raise InternalError(f"malformed server info: {error}") from None


def _info(message: pb.ServerInfo) -> ServerInfo:
    jobs: dict[str, dict[int, str]] = {}
    for name, address in message.cluster.items():
        task = Task.parse(name)
        jobs.setdefault(task.job, {})[task.index] = address
    return ServerInfo(
        Task.parse(message.task),
        message.incarnation,
        ClusterSpec(jobs),
        tuple(device_from_proto(device) for device in message.devices),
        message.n_compiled,
        message.session_defaults,
        _offer(message.data_offer) if message.HasField("data_offer") else None,
    )


def _offer(message: pb.DataOffer) -> DataOffer | None:
    """Converts an offer from protobuf; None if this version cannot take it."""
    if len(message.nonce) != OFFER_NONCE_BYTES or not (message.path or 0 < message.port < 1 << 16):
        return None
    return DataOffer(message.path, message.boot_id, message.nonce, message.port)


def effect_to_proto(effect: Effect) -> pb.Effect:
    """Converts an effect to protobuf."""
    return pb.Effect(**vars(effect))


def effect_from_proto(message: pb.Effect, numbers: Sequence[int] = ()) -> Effect:
    """Converts an effect from protobuf. Raises InvalidArgumentError as `Effect`.

    Args:
      message: the effect.
      numbers: its sequence and what is acknowledged, if the message does not have them.
    """
    sequence, acknowledged = numbers or (message.sequence, message.acknowledged)
    return Effect(
        message.client,
        message.epoch,
        sequence,
        message.attempt,
        acknowledged,
        message.is_saved,
    )
