"""The table of the RPCs of a server's services.

Clients, peers and the dispatcher are derived from this table: a new RPC is a message in
`service.proto`, an entry here and a method of the service (`services.py`). The entries of steps are
in `run_rpcs.py`, those of saves and restores in `save_rpcs.py`, of watchers in
`watch_rpcs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from jflow.cluster import Device, Task
from jflow.errors import InvalidArgumentError
from jflow.fencing import Claim
from jflow.moves import End, StateId
from jflow.plan import Plan
from jflow.protocol.codec import state_from_proto, state_to_proto
from jflow.protocol.effect_rpcs import (
    DECIDE_EFFECT,
    TAKE_OVER_EFFECT,
)
from jflow.protocol.plan_codec import plan_to_proto, plans_from_proto
from jflow.protocol.records import (
    Artifacts,
    DeviceRecord,
    Registered,
    SavedState,
    device_from_proto,
    device_to_proto,
)
from jflow.protocol.rpc import Incoming, Outgoing, Rpc, Service
from jflow.protocol.run_rpcs import RUN_PLANS as RUN_PLANS
from jflow.protocol.run_rpcs import RUN_STEP as RUN_STEP
from jflow.protocol.run_rpcs import SEND_TENSORS as SEND_TENSORS
from jflow.protocol.save_rpcs import OF_MASTER, OF_WORKER
from jflow.protocol.services import MasterSession, WorkerService, WorkerSession
from jflow.protocol.v1 import service_pb2 as pb
from jflow.protocol.watch_rpcs import FIND_WAITS, INSPECT, INSPECT_TASKS, STOP, STOP_TASKS
from jflow.values import Array

S_contra = TypeVar("S_contra", contravariant=True)

# Remote procedures ------------------------------------------------------------------------------


_DONE: Outgoing = (None, ())


def _nothing(_: Any, __: list[Array]) -> None:
    """The result of an RPC that returns nothing."""


def _registered(message: pb.Registered, _: list[Array]) -> Registered:
    return Registered(message.handle, tuple(message.missing), message.n_bytes)


def _registered_to_proto(registered: Registered) -> Outgoing:
    handle, missing, n_bytes = registered.handle, registered.missing, registered.n_bytes
    return pb.Registered(handle=handle, missing=missing, n_bytes=n_bytes), ()


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
    plans: Sequence[Plan],
    n_fetches: int,
    artifacts: Artifacts,
    connect_timeout: float,
    restarted: Sequence[Task] = (),
) -> Outgoing:
    message = pb.RegisterStep(
        plans=[plan_to_proto(plan) for plan in plans],
        n_fetches=n_fetches,
        artifacts=[pb.Artifact(digest=digest) for digest in artifacts],
        connect_timeout_s=connect_timeout,
        restarted=map(str, restarted),
    )
    return message, list(artifacts.values())


async def _serve_register_step(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.register_step
    plans = await plans_from_proto(body.plans)
    artifacts = _artifacts(body.artifacts, call.tensors)
    patience, restarted = body.connect_timeout_s, [*map(Task.parse, body.restarted)]
    return _registered_to_proto(
        await session.register(plans, body.n_fetches, artifacts, patience, call.deadline, restarted)
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


def _called_back(call: int, number: int, results: Sequence[Array]) -> Outgoing:
    return pb.CalledBack(call=call, number=number), results


async def _serve_called_back(_: MasterSession, call: Incoming) -> Outgoing:
    call.functions.answered(call.envelope, call.tensors)
    return _DONE


CALLED_BACK = Rpc("called_back", _called_back, _serve_called_back, _nothing)


def _reset_all(
    containers: Sequence[str], connect_timeout: float, tasks: Sequence[Task]
) -> Outgoing:
    named = map(str, tasks)
    return pb.Reset(containers=containers, connect_timeout_s=connect_timeout, tasks=named), ()


async def _serve_reset_all(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.reset
    tasks = [Task.parse(name) for name in body.tasks]
    await session.reset(list(body.containers), body.connect_timeout_s, call.deadline, tasks)
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


def _move_state(
    states: Sequence[StateId], target: str, hold_s: float, connect_timeout: float
) -> Outgoing:
    message = pb.MoveState(
        states=map(state_to_proto, states),
        target=target,
        hold_s=hold_s,
        connect_timeout_s=connect_timeout,
    )
    return message, ()


async def _serve_move_state(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.move_state
    states = [state_from_proto(state) for state in body.states]
    await session.move_state(
        states, body.target, body.hold_s, body.connect_timeout_s, call.deadline
    )
    return _DONE


MOVE_STATE = Rpc(
    "move_state",
    _move_state,
    _serve_move_state,
    _nothing,
    doing=lambda body: f"moving {body.states[0].name!r} to {body.target}",
)


def _claim(name: str, epoch: int, connect_timeout: float) -> Outgoing:
    return pb.Claim(name=name, epoch=epoch, connect_timeout_s=connect_timeout), ()


async def _serve_claim(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.claim
    epoch = await session.claim(body.name, body.epoch, body.connect_timeout_s, call.deadline)
    return pb.Claimed(epoch=epoch), ()


def _epoch(message: pb.Claimed, _: list[Array]) -> int:
    return int(message.epoch)


CLAIM = Rpc(
    "claim",
    _claim,
    _serve_claim,
    _epoch,
    "claimed",
    lambda body: f"claiming {body.name!r}",
)

# Of the worker ----------------------------------------------------------------------------------


def _register_plans(
    plans: Sequence[Plan],
    artifacts: Artifacts,
    is_restartable: bool = False,
    claim: Claim | None = None,
) -> Outgoing:
    message = pb.RegisterPlans(
        plans=[plan_to_proto(plan) for plan in plans],
        artifacts=[pb.Artifact(digest=digest) for digest in artifacts],
        is_restartable=is_restartable,
        claim=None if claim is None else pb.Claim(name=claim.name, epoch=claim.epoch),
    )
    return message, list(artifacts.values())


async def _serve_register_plans(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.register_plans
    plans = await plans_from_proto(body.plans)
    artifacts = _artifacts(body.artifacts, call.tensors)
    claim = Claim(body.claim.name, body.claim.epoch) if body.HasField("claim") else None
    return _registered_to_proto(await worker.register(plans, artifacts, body.is_restartable, claim))


REGISTER_PLANS = Rpc(
    "register_plans", _register_plans, _serve_register_plans, _registered, "registered"
)


def _reset(containers: Sequence[str]) -> Outgoing:
    return pb.Reset(containers=containers), ()


async def _serve_reset(worker: WorkerSession, call: Incoming) -> Outgoing:
    await worker.reset(list(call.envelope.reset.containers))
    return _DONE


RESET = Rpc("reset", _reset, _serve_reset, _nothing)


def _hold_state(hold: str, states: Sequence[StateId], target: str, seconds: float) -> Outgoing:
    named = map(state_to_proto, states)
    return pb.HoldState(hold=hold, states=named, target=target, seconds=seconds), ()


async def _serve_hold_state(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.hold_state
    states = [state_from_proto(state) for state in body.states]
    await worker.hold_state(body.hold, states, body.target, body.seconds)
    return _DONE


HOLD_STATE = Rpc("hold_state", _hold_state, _serve_hold_state, _nothing)


def _save_state(hold: str) -> Outgoing:
    return pb.SaveState(hold=hold), ()


async def _serve_save_state(worker: WorkerSession, call: Incoming) -> Outgoing:
    record, tensors = await worker.save_state(call.envelope.save_state.hold)
    return pb.SavedState(record=record), tensors


SAVE_STATE = Rpc(
    "save_state",
    _save_state,
    _serve_save_state,
    lambda message, tensors: SavedState(message.record, tensors),
    "saved_state",
)


def _put_state(hold: str, record: bytes, tensors: Sequence[Array]) -> Outgoing:
    return pb.PutState(hold=hold, record=record), tensors


async def _serve_put_state(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.put_state
    await worker.put_state(body.hold, body.record, call.tensors)
    return _DONE


PUT_STATE = Rpc("put_state", _put_state, _serve_put_state, _nothing)


def _end_hold(hold: str, end: End) -> Outgoing:
    return pb.EndHold(hold=hold, end=pb.EndHold.End.Name(end.value)), ()


async def _serve_end_hold(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.end_hold
    await worker.end_hold(body.hold, End(body.end))
    return _DONE


END_HOLD = Rpc("end_hold", _end_hold, _serve_end_hold, _nothing)


def _get_outcome(hold: str) -> Outgoing:
    return pb.GetOutcome(hold=hold), ()


async def _serve_get_outcome(worker: WorkerSession, call: Incoming) -> Outgoing:
    return pb.Outcome(has_moved=await worker.get_outcome(call.envelope.get_outcome.hold)), ()


def _has_moved(message: pb.Outcome, _: list[Array]) -> bool:
    return message.has_moved


GET_OUTCOME = Rpc("get_outcome", _get_outcome, _serve_get_outcome, _has_moved, "outcome")


def _learn_claim(name: str, epoch: int) -> Outgoing:
    return pb.Claim(name=name, epoch=epoch), ()


async def _serve_learn_claim(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.claim
    return pb.Claimed(epoch=await worker.learn_claim(body.name, body.epoch)), ()


LEARN_CLAIM = Rpc("claim", _learn_claim, _serve_learn_claim, _epoch, "claimed")

# The table --------------------------------------------------------------------------------------


def _by_name(*rpcs: Rpc[S_contra, ..., Any]) -> dict[str, Rpc[S_contra, ..., Any]]:
    return {rpc.name: rpc for rpc in rpcs}


MASTER: Service[MasterSession] = Service(
    "jflow.v1.Master/Session",
    "a master",
    lambda server, _: server.open_master_session(),
    _by_name(
        *(RUN_STEP, CALLED_BACK, REGISTER_STEP, LIST_DEVICES, RELEASE, RESET_ALL, MOVE_STATE),
        *(CLAIM, INSPECT_TASKS, STOP_TASKS, FIND_WAITS),
        *OF_MASTER,
    ),
)

WORKER: Service[WorkerSession] = Service(
    "jflow.v1.Worker/Peer",
    "a worker",
    lambda server, caller: server.open_worker_session(caller),
    _by_name(
        *(RUN_PLANS, SEND_TENSORS, REGISTER_PLANS, RELEASE, RESET),
        *(HOLD_STATE, SAVE_STATE, PUT_STATE, END_HOLD, GET_OUTCOME, LEARN_CLAIM),
        *(HOLD_STATE, SAVE_STATE, PUT_STATE, END_HOLD, GET_OUTCOME),
        *(TAKE_OVER_EFFECT, DECIDE_EFFECT, INSPECT, STOP),
        *OF_WORKER,
    ),
)
