"""The RPCs that run registered steps, for the table in `rpcs.py`.

Their requests are repeated, so their messages have templates, and servers begin them inline, in a
plain function: what need not wait is answered there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from jflow.base.cluster import Task
from jflow.base.deadline.clock import boot_id, now
from jflow.base.drivers.coroutines import Started
from jflow.base.failpoints import async_failpoint
from jflow.base.roles import AccessRole
from jflow.base.values import Array, SentArray
from jflow.errors import InternalError, InvalidArgumentError
from jflow.net.protocol.client_functions import ClientFunctions
from jflow.net.protocol.frame import new_tuple
from jflow.net.protocol.records import Piggybacked, effect_from_proto, effect_to_proto
from jflow.net.protocol.rpc import DONE, Incoming, Outgoing, RepeatedCall, Rpc, deadline_of, nothing
from jflow.net.protocol.services import MasterSession, WorkerSession
from jflow.net.protocol.templates import Rest, TemplateMessage, TemplateReply
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.plan.trace.record import Exchange, TaskRecord, offset_of
from jflow.state.effects import Effect
from jflow.state.effects.effect import Staging

_RECEIVED = TemplateReply(())


def _tensors(_: Any, tensors: list[Array]) -> list[Array]:
    return tensors


def _key(effect: Effect | None) -> tuple[Hashable, int, int]:
    """Splits an effect into a key that the runs of a step share, and the two numbers that vary."""
    if effect is None:
        return None, 0, 0
    key = effect.client, effect.epoch, effect.attempt, effect.is_saved
    return key, effect.sequence, effect.acknowledged


# The step of a client ---------------------------------------------------------------------------


def _run_step(
    handle: int,
    feeds: Sequence[Array],
    *,
    calls_back: bool = False,
    is_traced: bool = False,
    effect: Effect | None = None,
    step_id: int = 0,
) -> Outgoing:
    message = pb.RunStep(handle=handle, calls_back=calls_back, is_traced=is_traced, step=step_id)
    if effect is not None:
        message.effect.CopyFrom(effect_to_proto(effect))
    return message, feeds


async def _serve_run_step(session: MasterSession, call: Incoming) -> Outgoing:
    body = call.envelope.run_step
    effect = effect_from_proto(body.effect) if body.HasField("effect") else None
    run = partial(
        session.run_step,
        body.handle,
        call.deadline,
        call.tensors,
        effect=effect,
        step_id=body.step,
    )
    if not body.calls_back and not body.is_traced:
        return None, await run()
    client = call.functions.of_call(call.envelope.id) if body.calls_back else None
    run = partial(run, client)
    return await serve_traced(run) if body.is_traced else (None, await run())


def _repeated_step(
    handle: int,
    feeds: Sequence[Array],
    *,
    calls_back: bool = False,
    is_traced: bool = False,
    effect: Effect | None = None,
    step_id: int = 0,
) -> RepeatedCall:
    whole: Hashable = (handle, calls_back, is_traced)
    numbers = (step_id, 0, 0)
    if effect is not None:
        key, sequence, acknowledged = _key(effect)
        whole, numbers = (whole, key), (step_id, sequence, acknowledged)
    return new_tuple(RepeatedCall, (whole, numbers, feeds))


def _begin_step(
    session: MasterSession, call: TemplateMessage, __: ClientFunctions
) -> TemplateReply | Rest | None:
    body, varying = call.template.envelope.run_step, call.varying
    if body.calls_back:
        return None
    step_id, *numbers = varying.numbers
    effect = effect_from_proto(body.effect, numbers) if body.HasField("effect") else None
    deadline = deadline_of(call.template.envelope.timeout_s, varying.remaining_s)
    begun, records = now(), list[TaskRecord]() if body.is_traced else None
    run = session.begin_step(body.handle, deadline, call.tensors, effect, records, step_id)
    if run is None or records is None:
        return None if run is None else _fetch_reply(run)
    return partial(_late_traced_reply, run, records, begun)


def _fetch_reply(
    run: Started[Sequence[Array]], piggybacked: Piggybacked | None = None
) -> TemplateReply | Rest:
    """Returns the fetched values as a reply, or a function that waits for them.

    Values that are piggybacked come with them.
    """
    if not run.is_done:
        return partial(_late_fetch_reply, run, piggybacked)
    if piggybacked is None:
        return new_tuple(TemplateReply, (run.result, None, pb.Envelope))
    return _reply_of(run.result, piggybacked)


async def _late_fetch_reply(
    run: Started[Sequence[Array]], piggybacked: Piggybacked | None
) -> TemplateReply:
    return _reply_of(await run.rest(), piggybacked)


RUN_STEP = Rpc(
    "run_step",
    _run_step,
    _serve_run_step,
    _tensors,
    "traced",
    lambda _: "running the step",
    lambda session, envelope: session.reply_size(envelope.run_step.handle),
    _repeated_step,
    _begin_step,
    lambda session, envelope: session.watch_tasks(envelope.run_step.handle),
    needs=AccessRole.READ,
)


# The plans of a task ----------------------------------------------------------------------------


@dataclass(frozen=True)
class PlansRequest:
    """The request to a task to run its plans of a step.

    Attributes:
      step, handle, feeds, staging: as for `WorkerSession.run_plans`.
      is_traced: whether the task returns its trace records, too.
      asker: the name of the task that takes piggybacked values; "" if it takes none.
    """

    step: int
    handle: int
    feeds: Sequence[Array]
    is_traced: bool = False
    staging: Staging | None = None
    asker: str = ""


def _run_plans(request: PlansRequest) -> Outgoing:
    message = pb.RunPlans(
        step=request.step,
        handle=request.handle,
        is_traced=request.is_traced,
        asker=request.asker,
    )
    staging = request.staging
    if staging is not None:
        message.effect.CopyFrom(effect_to_proto(staging.effect))
        message.is_alone = staging.is_alone
        message.participants.extend(staging.participants)
    return message, request.feeds


async def _serve_run_plans(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.run_plans
    staging = None
    if body.HasField("effect"):
        effect = effect_from_proto(body.effect)
        staging = Staging(effect, body.is_alone, tuple(body.participants))
    if body.is_traced:
        run = partial(worker.run_plans, body.step, body.handle, call.tensors, None, staging=staging)
        return await serve_traced(run)
    return None, await worker.run_plans(body.step, body.handle, call.tensors, staging=staging)


def _repeated_plans(request: PlansRequest) -> RepeatedCall:
    staging = request.staging
    key, sequence, acknowledged = _key(None if staging is None else staging.effect)
    if staging is not None:
        key = key, staging.is_alone, staging.participants
    whole = request.handle, request.is_traced, request.asker, key
    return RepeatedCall(whole, (request.step, sequence, acknowledged), request.feeds)


def _begin_plans(
    worker: WorkerSession, call: TemplateMessage, __: ClientFunctions
) -> TemplateReply | Rest | None:
    body = call.template.envelope.run_plans
    if worker.needs_task(body.handle) and asyncio.current_task() is None:
        return None
    numbers, staging = call.varying.numbers, None
    if body.HasField("effect"):
        effect = effect_from_proto(body.effect, numbers[1:])
        staging = Staging(effect, body.is_alone, tuple(body.participants))
    elif (
        not body.is_traced
        and (running := worker.begin_plans(numbers[0], body.handle, call.tensors)) is not None
    ):
        return _fetch_reply(running)  # nothing is piggybacked: it sends nothing
    piggybacked = Piggybacked(parsed_task(body.asker)) if body.asker else None
    begun, records = now(), list[TaskRecord]() if body.is_traced else None
    run = Started(
        worker.run_plans(
            numbers[0],
            body.handle,
            call.tensors,
            records=records,
            staging=staging,
            piggybacked=piggybacked,
        )
    )
    if records is not None:
        return partial(_late_traced_reply, run, records, begun, piggybacked)
    return _fetch_reply(run, piggybacked)


def _reply_of(fetched: Sequence[Array], piggybacked: Piggybacked | None) -> TemplateReply:
    """Returns a reply with the fetched values and those that are piggybacked."""
    if piggybacked is None or not piggybacked.values:
        return TemplateReply(fetched)
    tensors, signals = _divided(piggybacked)

    def make() -> pb.Envelope:
        return pb.Envelope(ran_plans=pb.RanPlans(edges=tensors, signals=signals))

    return TemplateReply([*fetched, *tensors.values()], (tuple(tensors), signals), make)


def _divided(piggybacked: Piggybacked) -> tuple[dict[int, Array], tuple[int, ...]]:
    """Returns the piggybacked values by edge, and the edges of signals."""
    tensors = {edge: value for edge, value in piggybacked.values.items() if value is not None}
    return tensors, tuple(edge for edge in piggybacked.values if edge not in tensors)


def piggybacked_values(message: pb.RanPlans, tensors: list[Array]) -> dict[int, Array | None]:
    """Removes the piggybacked values from the tensors of a reply; returns them by edge.

    Raises:
      InternalError: if the reply is malformed.
    """
    n_fetched = len(tensors) - len(message.edges)
    if n_fetched < 0:
        raise InternalError(
            f"expected a tensor for each of {len(message.edges)} edges, got {len(tensors)}"
        )
    values: dict[int, Array | None] = dict(zip(message.edges, tensors[n_fetched:], strict=True))
    del tensors[n_fetched:]
    return values | dict.fromkeys(message.signals)


@lru_cache(256)
def parsed_task(name: str) -> Task:
    """Parses the name of a task. Raises InvalidArgumentError if it is malformed."""
    try:
        return Task.parse(name)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None


RUN_PLANS = Rpc(
    "run_plans",
    _run_plans,
    _serve_run_plans,
    _tensors,
    "traced",
    repeated=_repeated_plans,
    begin=_begin_plans,
    needs=AccessRole.CLUSTER,
)


# Values between tasks ---------------------------------------------------------------------------


def _send_tensors(step: int, values: Mapping[int, SentArray | None]) -> Outgoing:
    tensors = {edge: value for edge, value in values.items() if value is not None}
    signals = [edge for edge in values if edge not in tensors]
    return pb.SendTensors(step=step, edges=tensors, signals=signals), [*tensors.values()]


async def _serve_send_tensors(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.send_tensors
    await _deliver_all(worker, body, body.step, call.tensors)
    return DONE


async def _deliver_all(
    worker: WorkerSession, body: pb.SendTensors, step: int, tensors: list[Array]
) -> None:
    """Delivers the values and signals of a step to the worker."""
    if len(body.edges) != len(tensors):
        raise InvalidArgumentError(
            f"expected a tensor for each of {len(body.edges)} edges, got {len(tensors)}"
        )
    if (action := async_failpoint("worker.before_deliver")) is not None:
        await action
    is_full = False
    for edge, tensor in zip(body.edges, tensors, strict=True):
        is_full |= worker.deliver(step, edge, tensor)
    for edge in body.signals:
        is_full |= worker.deliver(step, edge, None)
    # The stream is not read meanwhile. The beginning of the step comes on another one, because its
    # sender sends it first: see `Peer.deliver`.
    if is_full:
        await worker.make_room()


def _repeated_tensors(step: int, values: Mapping[int, SentArray | None]) -> RepeatedCall:
    tensors = [value for value in values.values() if value is not None]
    key = tuple((edge, value is None) for edge, value in values.items())
    return RepeatedCall(key, (step, 0, 0), tensors)


def _begin_tensors(
    worker: WorkerSession, call: TemplateMessage, __: ClientFunctions
) -> TemplateReply | Rest:
    body, (step, *_) = call.template.envelope.send_tensors, call.varying.numbers
    delivered = Started(_deliver_all(worker, body, step, call.tensors))
    return _RECEIVED if delivered.is_done else partial(_confirm_delivery, delivered)


async def _confirm_delivery(delivered: Started[None]) -> TemplateReply:
    await delivered.rest()
    return _RECEIVED


SEND_TENSORS = Rpc(
    "send_tensors",
    _send_tensors,
    _serve_send_tensors,
    nothing,
    repeated=_repeated_tensors,
    begin=_begin_tensors,
    needs=AccessRole.CLUSTER,
)


async def serve_traced(
    run: Callable[[list[TaskRecord]], Awaitable[Sequence[Array]]],
) -> Outgoing:
    """Runs a step or the plans of one; returns a reply with its values and trace records.

    Args:
      run: adds the records of tasks to a list, and returns the values.
    """
    begun, records = now(), list[TaskRecord]()
    return _with_records(await run(records), records, begun)


async def _late_traced_reply(
    run: Started[Sequence[Array]],
    records: list[TaskRecord],
    begun: float,
    piggybacked: Piggybacked | None = None,
) -> tuple[pb.Envelope, Sequence[Array]]:
    """Returns the reply to a traced call that has begun, with the values that are piggybacked."""
    values = run.result if run.is_done else await run.rest()
    sent, signals = ({}, ()) if piggybacked is None else _divided(piggybacked)
    message, tensors = _with_records([*values, *sent.values()], records, begun)
    if sent or signals:
        message.ran.CopyFrom(pb.RanPlans(edges=sent, signals=signals))
    return pb.Envelope(traced=message), tensors


def _with_records(
    values: Sequence[Array], records: Sequence[TaskRecord], begun: float
) -> tuple[pb.Traced, Sequence[Array]]:
    """Returns the reply with the values and trace records of a call that came at `begun`."""
    packed = [np.frombuffer(record.to_bytes(), np.uint8) for record in records]
    message = pb.Traced(n_records=len(records), begun_s=begun, ended_s=now(), clock=boot_id())
    return message, [*values, *packed]


def without_records(
    message: pb.Traced, tensors: Sequence[Array], sent: float, records: list[TaskRecord]
) -> list[Array]:
    """Returns the values of the reply to a traced call, and appends its trace records.

    Args:
      message: the body of the reply.
      tensors: its values and records.
      sent: when the request left, by this process's clock; the reply has just come.
      records: the records are appended to it, by this process's clock.

    Raises:
      InternalError: if the reply is malformed.
    """
    answered, n_values = now(), len(tensors) - message.n_records
    if n_values < 0:
        raise InternalError(
            f"a reply with {len(tensors)} tensors names {message.n_records} records"
        )
    is_one_clock = bool(message.clock) and message.clock == boot_id()
    times = Exchange(sent, message.begun_s, message.ended_s, answered, is_one_clock)
    offset, error = offset_of(times)
    for packed in tensors[n_values:]:
        records.append(TaskRecord.from_bytes(packed.tobytes()).shifted(offset, error))
    return list(tensors[:n_values])
