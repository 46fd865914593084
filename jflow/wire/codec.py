"""Between records and protobuf: plans, tensors, errors and whole messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jflow.cluster import Device
from jflow.errors import InternalError, InvalidArgumentError, OpError, UnknownError, from_code
from jflow.plan import (
    Feed,
    Fetch,
    Plan,
    Program,
    Recv,
    Run,
    Send,
    Step,
    VariableKey,
    VariableSpec,
)
from jflow.wire.frame import Array, Message, aligned, encode
from jflow.wire.v1 import plan_pb2 as pb_plan
from jflow.wire.v1 import service_pb2 as pb
from jflow.wire.v1 import tensor_pb2 as pb_tensor

# Messages --------------------------------------------------------------------------------------


def frames(frame_id: int, envelope: pb.Envelope, tensors: Sequence[Array]) -> Iterator[bytes]:
    """The frames of an envelope with its tensors.

    Args:
      frame_id: tells this message from others under way on the stream.
      envelope: the control part; its `tensors` are set here.
      tensors: arrays of any dtype that JAX knows.
    """
    contiguous = [np.ascontiguousarray(tensor).reshape(tensor.shape) for tensor in tensors]
    for tensor in contiguous:
        envelope.tensors.add(dtype=tensor.dtype.name, shape=tensor.shape)
    raw = [tensor.reshape(-1).view(np.uint8) for tensor in contiguous]
    return encode(frame_id, envelope.SerializeToString(), raw)


def open_message(message: Message) -> tuple[pb.Envelope, list[Array]]:
    """The envelope and the tensors, which are views of the message's payload.

    Raises:
      InvalidArgumentError: if the control part or a tensor is malformed.
    """
    envelope = pb.Envelope()
    try:
        envelope.ParseFromString(message.control)
    except Exception as error:
        raise InvalidArgumentError(f"a control message cannot be read: {error}") from None
    tensors = []
    start = 0
    for meta in envelope.tensors:
        dtype = _dtype(meta.dtype)
        n_bytes = dtype.itemsize
        for size in meta.shape:
            n_bytes *= size
        if start + n_bytes > len(message.payload):
            raise InvalidArgumentError(
                f"a tensor of {meta.dtype}{list(meta.shape)} does not fit the "
                f"{len(message.payload)} payload bytes that came with it"
            )
        raw = message.payload[start : start + n_bytes]
        tensors.append(raw.view(dtype).reshape(tuple(meta.shape)))
        start += aligned(n_bytes)
    return envelope, tensors


def _dtype(name: str) -> np.dtype[Any]:
    """The dtype of that name, ml_dtypes' included, as long as it is one of numbers."""
    try:
        dtype: np.dtype[Any] = jnp.dtype(name)
    except TypeError:
        raise InvalidArgumentError(f"unknown element type {name!r}") from None
    if dtype.hasobject or dtype.itemsize == 0:
        raise InvalidArgumentError(f"element type {name!r} is not one of numbers")
    return dtype


# Errors ----------------------------------------------------------------------------------------


def error_to_status(error: BaseException, task: str) -> pb_tensor.Status:
    """A status for any error; those that are not jflow's own become INTERNAL.

    Args:
      error: what was raised.
      task: where, for errors that do not say so themselves.
    """
    if not isinstance(error, OpError):
        error = InternalError(f"{type(error).__name__}: {error}")
    return pb_tensor.Status(
        code=error.error_code, message=error.message, op=error.op or "", task=error.task or task
    )


def error_of(status: pb_tensor.Status) -> OpError:
    """The error that a status other than success stands for."""
    if not status.code:
        return UnknownError("a status of success was taken for an error")
    return from_code(status.code, status.message, op=status.op or None, task=status.task or None)


# Plans -----------------------------------------------------------------------------------------


def plan_to_proto(plan: Plan) -> pb_plan.Plan:
    """A plan as a message."""
    message = pb_plan.Plan(device=str(plan.device), n_slots=plan.n_slots)
    for spec in plan.variables:
        message.variables.add(
            container=spec.key.container, name=spec.key.name, dtype=spec.dtype, shape=spec.shape
        )
    for stage in plan.stages:
        message.stages.add(steps=[_step_to_proto(step) for step in stage])
    return message


def plan_from_proto(message: pb_plan.Plan) -> Plan:
    """The plan of a message.

    Raises:
      InvalidArgumentError: if a step is missing or names a slot or variable that is not there.
    """
    variables = tuple(
        VariableSpec(VariableKey(v.container, v.name), v.dtype, tuple(v.shape))
        for v in message.variables
    )
    stages = tuple(
        tuple(_step_from_proto(step) for step in stage.steps) for stage in message.stages
    )
    plan = Plan(Device.parse(message.device), message.n_slots, variables, stages)
    for step in plan.steps:
        _check_step(step, plan)
    return plan


def _step_to_proto(step: Step) -> pb_plan.Step:
    match step:
        case Feed():
            return pb_plan.Step(feed=pb_plan.Feed(index=step.index, slot=step.slot))
        case Fetch():
            return pb_plan.Step(fetch=pb_plan.Fetch(index=step.index, slot=step.slot))
        case Recv():
            recv = pb_plan.Recv(edge=step.edge, source=str(step.source), slot=step.slot)
            return pb_plan.Step(recv=recv)
        case Send():
            send = pb_plan.Send(edge=step.edge, target=str(step.target), slot=step.slot)
            return pb_plan.Step(send=send)
        case Run():
            return pb_plan.Step(run=_run_to_proto(step))


def _run_to_proto(step: Run) -> pb_plan.Run:
    program = step.program
    return pb_plan.Run(
        program=None
        if program is None
        else pb_plan.Program(
            digest=program.digest, constants=program.constants, donated=program.donated
        ),
        reads=step.reads,
        inputs=step.inputs,
        writes=step.writes,
        outputs=step.outputs,
        before=[pb_plan.Held(variable=v, slot=s) for v, s in step.before],
        after=[pb_plan.Held(variable=v, slot=s) for v, s in step.after],
    )


def _step_from_proto(message: pb_plan.Step) -> Step:
    match message.WhichOneof("kind"):
        case "feed":
            return Feed(message.feed.index, message.feed.slot)
        case "fetch":
            return Fetch(message.fetch.slot, message.fetch.index)
        case "recv":
            recv = message.recv
            return Recv(recv.edge, Device.parse(recv.source), _slot(recv))
        case "send":
            send = message.send
            return Send(send.edge, Device.parse(send.target), _slot(send))
        case "run":
            return _run_from_proto(message.run)
        case _:
            raise InvalidArgumentError("a plan has a step of no known kind")


def _run_from_proto(message: pb_plan.Run) -> Run:
    program = None
    if message.HasField("program"):
        sent = message.program
        program = Program(sent.digest, tuple(sent.constants), tuple(sent.donated))
    return Run(
        program=program,
        reads=tuple(message.reads),
        inputs=tuple(message.inputs),
        writes=tuple(message.writes),
        outputs=tuple(message.outputs),
        before=tuple((held.variable, held.slot) for held in message.before),
        after=tuple((held.variable, held.slot) for held in message.after),
    )


def _slot(message: pb_plan.Recv | pb_plan.Send) -> int | None:
    return message.slot if message.HasField("slot") else None


def _check_step(step: Step, plan: Plan) -> None:
    if isinstance(step, Run):
        held = (*step.before, *step.after)
        slots = (*step.inputs, *step.outputs, *(slot for _, slot in held))
        used = (*step.reads, *step.writes, *(variable for variable, _ in held))
    else:
        slots, used = (() if step.slot is None else (step.slot,)), ()
    if any(slot >= plan.n_slots for slot in slots) or any(v >= len(plan.variables) for v in used):
        raise InvalidArgumentError(f"a step of the plan for {plan.device} is out of range: {step}")
