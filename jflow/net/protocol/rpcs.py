"""The table of the RPCs of a server's services.

Clients, peers and the dispatcher are derived from this table. A new RPC is a method of a service
(`services.py`) that is marked `remote`. Here are those that carry plans, whose messages are
protobuf; those of steps are in `run_rpcs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from jflow.base.cluster import Device, Task
from jflow.base.roles import AccessRole
from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.net.protocol.plan_codec import plan_to_proto, plans_from_proto
from jflow.net.protocol.records import (
    UNKNOWN_OWNER,
    Artifacts,
    Registered,
    StepOwner,
    owner_from_proto,
)
from jflow.net.protocol.rpc import DONE, Incoming, Outgoing, Rpc, Service, nothing
from jflow.net.protocol.run_rpcs import RUN_PLANS as RUN_PLANS
from jflow.net.protocol.run_rpcs import RUN_STEP as RUN_STEP
from jflow.net.protocol.run_rpcs import SEND_TENSORS as SEND_TENSORS
from jflow.net.protocol.run_rpcs import parsed_task
from jflow.net.protocol.services import MasterSession, WorkerService, WorkerSession
from jflow.net.protocol.signatures import rpcs_of
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.plan import Plan

S_contra = TypeVar("S_contra", contravariant=True)

# Remote procedures ------------------------------------------------------------------------------


def _read_registered(message: pb.Registered, _: list[Array]) -> Registered:
    return Registered(message.handle, tuple(message.missing), message.n_bytes)


def _registered_to_proto(registered: Registered) -> Outgoing:
    return pb.Registered(**vars(registered)), ()


def _artifacts(sent: Sequence[pb.Artifact], tensors: list[Array]) -> dict[str, Array]:
    if len(sent) != len(tensors):
        raise InvalidArgumentError(
            f"expected a tensor for each of {len(sent)} artifacts, got {len(tensors)}"
        )
    return {artifact.digest: tensor for artifact, tensor in zip(sent, tensors, strict=True)}


# Of the master ----------------------------------------------------------------------------------


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
    patience, restarted = body.connect_timeout_s, [*map(parsed_task, body.restarted)]
    return _registered_to_proto(
        await session.register(plans, body.n_fetches, artifacts, patience, call.deadline, restarted)
    )


REGISTER_STEP = Rpc(
    "register_step",
    _register_step,
    _serve_register_step,
    _read_registered,
    "registered",
    lambda body: (
        "registering the step on "
        + ", ".join(dict.fromkeys(str(Device.parse(plan.device).task) for plan in body.plans))
    ),
    needs=AccessRole.READ,
)


def _called_back(call: int, number: int, results: Sequence[Array]) -> Outgoing:
    return pb.CalledBack(call=call, number=number), results


async def _serve_called_back(_: MasterSession, call: Incoming) -> Outgoing:
    call.functions.answered(call.envelope, call.tensors)
    return DONE


CALLED_BACK = Rpc("called_back", _called_back, _serve_called_back, nothing, needs=AccessRole.READ)


def _release(handle: int) -> Outgoing:
    return pb.Release(handles=[handle]), ()


async def _serve_release(session: MasterSession | WorkerService, call: Incoming) -> Outgoing:
    for handle in call.envelope.release.handles:
        session.release(handle)
    return DONE


RELEASE = Rpc("release", _release, _serve_release, nothing, needs=AccessRole.READ)


# Of the worker ----------------------------------------------------------------------------------


def _register_plans(
    plans: Sequence[Plan],
    artifacts: Artifacts,
    is_restartable: bool = False,
    owner: StepOwner = UNKNOWN_OWNER,
) -> Outgoing:
    claim = owner.claim
    message = pb.RegisterPlans(
        plans=[plan_to_proto(plan) for plan in plans],
        artifacts=[pb.Artifact(digest=digest) for digest in artifacts],
        is_restartable=is_restartable,
        claim=None if claim is None else pb.Claim(name=claim.name, epoch=claim.epoch),
        owner=pb.StepOwner(session=owner.session, user=owner.user),
    )
    return message, list(artifacts.values())


async def _serve_register_plans(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.register_plans
    plans = await plans_from_proto(body.plans)
    artifacts = _artifacts(body.artifacts, call.tensors)
    owner = owner_from_proto(body)
    return _registered_to_proto(await worker.register(plans, artifacts, body.is_restartable, owner))


REGISTER_PLANS = Rpc(
    "register_plans",
    _register_plans,
    _serve_register_plans,
    _read_registered,
    "registered",
    needs=AccessRole.CLUSTER,
)


# The table --------------------------------------------------------------------------------------


def _table(*rpcs: Rpc[S_contra, ..., Any]) -> dict[str, Rpc[S_contra, ..., Any]]:
    return {rpc.name: rpc for rpc in rpcs}


MASTER: Service[MasterSession] = Service(
    "jflow.v1.Master/Session",
    "a master",
    lambda server, _, rights: server.open_master_session(rights),
    _table(
        *(RUN_STEP, CALLED_BACK, REGISTER_STEP, RELEASE),
        *rpcs_of(MasterSession).values(),
    ),
)

WORKER: Service[WorkerSession] = Service(
    "jflow.v1.Worker/Peer",
    "a worker",
    lambda server, caller, _: server.open_worker_session(caller),
    _table(
        *(RUN_PLANS, SEND_TENSORS, REGISTER_PLANS, replace(RELEASE, needs=AccessRole.CLUSTER)),
        *rpcs_of(WorkerSession).values(),
    ),
)
