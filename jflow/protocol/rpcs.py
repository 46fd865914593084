"""The services of a server and the table of their RPCs.

Clients, peers and the dispatcher are derived from this table: a new RPC is a message in
`service.proto`, an entry here and a method of the service.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from jflow.cluster import Device, Task
from jflow.deadline import Deadline
from jflow.errors import InvalidArgumentError
from jflow.failpoints import async_failpoint
from jflow.plan import Plan
from jflow.protocol.codec import plan_from_proto, plan_to_proto
from jflow.protocol.records import (
    Artifacts,
    Client,
    DeviceRecord,
    Registered,
    ServerInfo,
    device_from_proto,
    device_to_proto,
)
from jflow.protocol.rpc import Incoming, Outgoing, Rpc, Service
from jflow.protocol.traced import serve_traced
from jflow.protocol.v1 import service_pb2 as pb
from jflow.trace.record import TaskRecord
from jflow.values import Array

S_contra = TypeVar("S_contra", contravariant=True)

# Services ---------------------------------------------------------------------------------------


class WorkerService(Protocol):
    """A worker, as the masters of the cluster call it. Every error is an `OpError`."""

    async def register(self, plans: Sequence[Plan], artifacts: Artifacts) -> Registered:
        """Compiles and links plans for devices of this task, and keeps them ready to run."""

    async def run(
        self,
        step: int,
        handle: int,
        feeds: Sequence[Array],
        client: Client | None = None,
        records: list[TaskRecord] | None = None,
    ) -> Sequence[Array]:
        """Runs registered plans; values are in the order of their indices.

        `client` is given only on the task that the client is connected to. If there are `records`,
        the step is traced, and what this task notes is added to them.
        """

    async def reset(self, containers: Sequence[str]) -> None:
        """Frees containers of this task."""

    def release(self, handle: int) -> None:
        """Forgets registered plans."""


class WorkerSession(WorkerService, Protocol):
    """A worker service for one caller."""

    def deliver(self, step: int, edge: int, tensor: Array | None) -> None:
        """Receives what another task sends under an edge of a step."""

    def close(self) -> None:
        """Forgets everything that the caller registered, after its running calls were cancelled."""


class MasterSession(Protocol):
    """A client's session, as the client calls it. Every error is an `OpError`.

    Every call has a deadline; `connect_timeout` is the longest time to wait for another task that
    does not answer, in seconds.
    """

    async def list_devices(
        self, tasks: Sequence[Task], connect_timeout: float, only_up: bool, deadline: Deadline
    ) -> Sequence[DeviceRecord]:
        """The devices of tasks; with `only_up` those that do not answer are omitted."""

    async def register(
        self,
        plans: Sequence[Plan],
        n_fetches: int,
        artifacts: Artifacts,
        connect_timeout: float,
        deadline: Deadline,
    ) -> Registered:
        """Registers a step on every task that takes part."""

    async def run(
        self,
        handle: int,
        deadline: Deadline,
        feeds: Sequence[Array],
        client: Client | None = None,
        records: list[TaskRecord] | None = None,
    ) -> Sequence[Array]:
        """Runs a registered step; one with callbacks requires `client`.

        If there are `records`, it is traced, and what each task notes is added to them.
        """

    def release(self, handle: int) -> None:
        """Forgets a registered step, here and on the tasks that take part."""

    async def reset(
        self, containers: Sequence[str], connect_timeout: float, deadline: Deadline
    ) -> None:
        """Frees containers on every task and closes this server's other sessions."""

    def close(self) -> None:
        """Releases what the session registered, after its running calls were cancelled."""


class ServerRoles(Protocol):
    """The roles of a server: a master for clients, a worker for other servers."""

    def info(self) -> ServerInfo:
        """The current server info."""

    def open_master_session(self) -> MasterSession:
        """Opens a session for a client."""

    def open_worker_session(self) -> WorkerSession:
        """Opens a session for another server."""


# Remote procedures ------------------------------------------------------------------------------


_DONE: Outgoing = (None, ())


def _nothing(_: Any, __: list[Array]) -> None:
    """The result of an RPC that returns nothing."""


def _tensors(_: Any, tensors: list[Array]) -> list[Array]:
    return tensors


def _registered(message: pb.Registered, _: list[Array]) -> Registered:
    return Registered(message.handle, tuple(message.missing))


def _registered_to_proto(registered: Registered) -> Outgoing:
    return pb.Registered(handle=registered.handle, missing=registered.missing), ()


def _artifacts(sent: Sequence[pb.Artifact], tensors: list[Array]) -> dict[str, Array]:
    if len(sent) != len(tensors):
        raise InvalidArgumentError(
            f"expected a tensor for each of {len(sent)} artifacts, got {len(tensors)}"
        )
    return {artifact.digest: tensor for artifact, tensor in zip(sent, tensors, strict=True)}


def _task(name: str) -> Task:
    try:
        return Task.parse(name)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None


# Of the master ----------------------------------------------------------------------------------


def _list_devices(
    tasks: Sequence[Task], connect_timeout: float, *, only_up: bool = False
) -> Outgoing:
    names = [str(task) for task in tasks]
    return pb.ListDevices(tasks=names, connect_timeout_s=connect_timeout, only_up=only_up), ()


async def _serve_list_devices(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.list_devices
    tasks = [_task(name) for name in body.tasks]
    found = await session.list_devices(tasks, body.connect_timeout_s, body.only_up, call.deadline)
    return pb.DeviceList(devices=[device_to_proto(device) for device in found]), ()


def _devices(message: pb.DeviceList, _: list[Array]) -> list[DeviceRecord]:
    return [device_from_proto(device) for device in message.devices]


LIST_DEVICES = Rpc(
    "list_devices",
    _list_devices,
    _serve_list_devices,
    _devices,
    "device_list",
    lambda body: "listing the devices of " + ", ".join(body.tasks),
)


def _register_step(
    plans: Sequence[Plan], n_fetches: int, artifacts: Artifacts, connect_timeout: float
) -> Outgoing:
    message = pb.RegisterStep(
        plans=[plan_to_proto(plan) for plan in plans],
        n_fetches=n_fetches,
        artifacts=[pb.Artifact(digest=digest) for digest in artifacts],
        connect_timeout_s=connect_timeout,
    )
    return message, list(artifacts.values())


async def _serve_register_step(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.register_step
    plans = [plan_from_proto(plan) for plan in body.plans]
    artifacts = _artifacts(body.artifacts, call.tensors)
    return _registered_to_proto(
        await session.register(
            plans, body.n_fetches, artifacts, body.connect_timeout_s, call.deadline
        )
    )


REGISTER_STEP = Rpc(
    "register_step",
    _register_step,
    _serve_register_step,
    _registered,
    "registered",
    lambda body: (
        "registering the step on "
        + ", ".join(dict.fromkeys(str(Device.parse(plan.device).task) for plan in body.plans))
    ),
)


def _run_step(
    handle: int, feeds: Sequence[Array], *, calls_back: bool = False, is_traced: bool = False
) -> Outgoing:
    return pb.RunStep(handle=handle, calls_back=calls_back, is_traced=is_traced), feeds


async def _serve_run_step(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.run_step
    if not body.calls_back and not body.is_traced:
        return None, await session.run(body.handle, call.deadline, call.tensors)
    client = call.functions.of_call(call.envelope.id) if body.calls_back else None
    run = partial(session.run, body.handle, call.deadline, call.tensors, client)
    return await serve_traced(run) if body.is_traced else (None, await run())


RUN_STEP = Rpc(
    "run_step", _run_step, _serve_run_step, _tensors, "traced", lambda _: "running the step"
)


def _called_back(call: int, number: int, results: Sequence[Array]) -> Outgoing:
    return pb.CalledBack(call=call, number=number), results


async def _serve_called_back(_: MasterSession, call: Incoming) -> Outgoing:
    call.functions.answered(call.envelope, call.tensors)
    return _DONE


CALLED_BACK = Rpc("called_back", _called_back, _serve_called_back, _nothing)


def _reset_all(containers: Sequence[str], connect_timeout: float) -> Outgoing:
    return pb.Reset(containers=containers, connect_timeout_s=connect_timeout), ()


async def _serve_reset_all(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.reset
    await session.reset(list(body.containers), body.connect_timeout_s, call.deadline)
    return _DONE


RESET_ALL = Rpc(
    "reset", _reset_all, _serve_reset_all, _nothing, doing=lambda _: "resetting containers"
)


def _release(handle: int) -> Outgoing:
    return pb.Release(handles=[handle]), ()


async def _serve_release(session: MasterSession | WorkerService, call: Incoming) -> Outgoing:
    for handle in call.envelope.release.handles:
        session.release(handle)
    return _DONE


RELEASE = Rpc("release", _release, _serve_release, _nothing)

# Of the worker ----------------------------------------------------------------------------------


def _register_plans(plans: Sequence[Plan], artifacts: Artifacts) -> Outgoing:
    message = pb.RegisterPlans(
        plans=[plan_to_proto(plan) for plan in plans],
        artifacts=[pb.Artifact(digest=digest) for digest in artifacts],
    )
    return message, list(artifacts.values())


async def _serve_register_plans(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.register_plans
    plans = [plan_from_proto(plan) for plan in body.plans]
    artifacts = _artifacts(body.artifacts, call.tensors)
    return _registered_to_proto(await worker.register(plans, artifacts))


REGISTER_PLANS = Rpc(
    "register_plans", _register_plans, _serve_register_plans, _registered, "registered"
)


def _run_plans(
    step: int, handle: int, feeds: Sequence[Array], *, is_traced: bool = False
) -> Outgoing:
    return pb.RunPlans(step=step, handle=handle, is_traced=is_traced), feeds


async def _serve_run_plans(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.run_plans
    if body.is_traced:
        return await serve_traced(partial(worker.run, body.step, body.handle, call.tensors, None))
    return None, await worker.run(body.step, body.handle, call.tensors)


RUN_PLANS = Rpc("run_plans", _run_plans, _serve_run_plans, _tensors, "traced")


def _send_tensor(step: int, edge: int, tensor: Array | None) -> Outgoing:
    return pb.SendTensor(step=step, edge=edge), () if tensor is None else (tensor,)


async def _serve_send_tensor(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.send_tensor
    if (action := async_failpoint("worker.before_deliver")) is not None:
        await action
    worker.deliver(body.step, body.edge, call.tensors[0] if call.tensors else None)
    return _DONE


SEND_TENSOR = Rpc("send_tensor", _send_tensor, _serve_send_tensor, _nothing)


def _reset(containers: Sequence[str]) -> Outgoing:
    return pb.Reset(containers=containers), ()


async def _serve_reset(worker: WorkerSession, call: Incoming) -> Outgoing:
    await worker.reset(list(call.envelope.reset.containers))
    return _DONE


RESET = Rpc("reset", _reset, _serve_reset, _nothing)

# The table --------------------------------------------------------------------------------------


def _by_name(*rpcs: Rpc[S_contra, ..., Any]) -> dict[str, Rpc[S_contra, ..., Any]]:
    return {rpc.name: rpc for rpc in rpcs}


MASTER: Service[MasterSession] = Service(
    "jflow.v1.Master/Session",
    "a master",
    lambda server: server.open_master_session(),
    _by_name(RUN_STEP, CALLED_BACK, REGISTER_STEP, LIST_DEVICES, RELEASE, RESET_ALL),
)

WORKER: Service[WorkerSession] = Service(
    "jflow.v1.Worker/Peer",
    "a worker",
    lambda server: server.open_worker_session(),
    _by_name(RUN_PLANS, SEND_TENSOR, REGISTER_PLANS, RELEASE, RESET),
)
