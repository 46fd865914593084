"""The RPCs of steps that are applied once, for the table in `rpcs.py`."""

from __future__ import annotations

from collections.abc import Sequence

from jflow.effects import Earlier, Effect, Phase
from jflow.errors import InvalidArgumentError
from jflow.protocol.codec import error_of, error_to_status
from jflow.protocol.rpc import Incoming, Outgoing, Rpc
from jflow.protocol.services import WorkerSession
from jflow.protocol.v1 import service_pb2 as pb
from jflow.values import Array


def effect_to_proto(effect: Effect) -> pb.Effect:
    """An effect as a message."""
    return pb.Effect(
        client=effect.client,
        epoch=effect.epoch,
        sequence=effect.sequence,
        attempt=effect.attempt,
        acknowledged=effect.acknowledged,
        is_saved=effect.is_saved,
    )


def effect_from_proto(message: pb.Effect) -> Effect:
    """The effect in a message. Raises InvalidArgumentError as `Effect`."""
    return Effect(
        message.client,
        message.epoch,
        message.sequence,
        message.attempt,
        message.acknowledged,
        message.is_saved,
    )


def _take_over(effect: Effect) -> Outgoing:
    return pb.TakeOverEffect(effect=effect_to_proto(effect)), ()


async def _serve_take_over(worker: WorkerSession, call: Incoming) -> Outgoing:
    effect = effect_from_proto(call.envelope.take_over_effect.effect)
    earlier = await worker.take_over_effect(effect)
    message = pb.EarlierEffect(
        phase=earlier.phase,
        attempt=earlier.attempt,
        participants=earlier.participants,
        has_results=earlier.results is not None,
    )
    if earlier.error is not None:
        message.error.CopyFrom(error_to_status(earlier.error, earlier.error.task or ""))
    return message, earlier.results or ()


def _earlier(message: pb.EarlierEffect, tensors: list[Array]) -> Earlier:
    return Earlier(
        Phase(message.phase),
        message.attempt,
        tuple(message.participants),
        tuple(tensors) if message.has_results else None,
        error_of(message.error) if message.error.code else None,
    )


TAKE_OVER_EFFECT = Rpc(
    "take_over_effect",
    _take_over,
    _serve_take_over,
    _earlier,
    "earlier_effect",
    method=lambda worker: worker.take_over_effect,
)


def _decide(effect: Effect, by: int, is_commit: bool, results: Sequence[Array] | None) -> Outgoing:
    message = pb.DecideEffect(
        effect=effect_to_proto(effect),
        by=by,
        is_commit=is_commit,
        has_results=results is not None,
    )
    return message, results or ()


async def _serve_decide(worker: WorkerSession, call: Incoming) -> Outgoing:
    body = call.envelope.decide_effect
    if call.tensors and not body.has_results:
        raise InvalidArgumentError(f"expected no results, got {len(call.tensors)}")
    results = call.tensors if body.has_results else None
    await worker.decide_effect(effect_from_proto(body.effect), body.by, body.is_commit, results)
    return None, ()


DECIDE_EFFECT = Rpc(
    "decide_effect",
    _decide,
    _serve_decide,
    lambda _, __: None,
    method=lambda worker: worker.decide_effect,
)
