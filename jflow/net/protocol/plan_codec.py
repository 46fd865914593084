"""Encoding and decoding of plans by protobuf."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from functools import partial

from google.protobuf.message import DecodeError

from jflow.base.cluster import Device
from jflow.base.drivers.coroutines import computed
from jflow.errors import InvalidArgumentError
from jflow.net.protocol.v1 import plan_pb2 as pb_plan
from jflow.plan import (
    MAX_OPERANDS,
    Call,
    Carry,
    EqualSizes,
    Feed,
    Fetch,
    InputSize,
    Instruction,
    Loop,
    Plan,
    Program,
    Recv,
    ResourceSpec,
    Run,
    Send,
    VariableKey,
    VariableSpec,
    check_size,
    verify,
)


def plan_to_proto(plan: Plan) -> pb_plan.Plan:
    """Converts a plan to protobuf."""
    message = pb_plan.Plan(device=str(plan.device), n_slots=plan.n_slots)
    for variable in plan.variables:
        key = variable.key
        message.variables.add(
            container=key.container,
            name=key.name,
            dtype=variable.dtype,
            shape=variable.shape,
            sharding=variable.sharding,
        )
    for spec in plan.resources:
        message.resources.add(**vars(spec))
    for stage in plan.stages:
        message.stages.add(instructions=[*map(_instruction_to_proto, stage)])
    message.unordered = bool(plan.after)
    for stage_message, after in zip(message.stages, plan.after, strict=False):
        stage_message.after.extend(after)
    return message


def plan_to_bytes(plan: Plan) -> bytes:
    """Encodes a plan for `plan_from_bytes`."""
    data: bytes = plan_to_proto(plan).SerializeToString(deterministic=True)
    return data


def plan_from_bytes(data: bytes) -> Plan:
    """Decodes a plan and verifies it. Raises InvalidArgumentError if it is malformed."""
    message = pb_plan.Plan()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise InvalidArgumentError(f"a plan cannot be read: {error}") from None
    return plan_from_proto(message)


async def plans_from_proto(messages: Sequence[pb_plan.Plan]) -> list[Plan]:
    """Decodes the plans of a step; off the event loop if they are large.

    Raises:
      InvalidArgumentError: as `plan_from_proto`.
      ResourceExhaustedError: if they have too many stages, instructions, operands, variables or
        resources; nothing is read then.
    """
    check_size(
        n_stages=sum(len(plan.stages) for plan in messages),
        n_states=sum(len(plan.variables) + len(plan.resources) for plan in messages),
    )
    n_bytes = sum(plan.ByteSize() for plan in messages)
    return await computed(n_bytes, partial(_plans, n_bytes), messages)


def _plans(n_bytes: int, messages: Sequence[pb_plan.Plan]) -> list[Plan]:
    every = [one for plan in messages for one in (plan, *_bodies(plan))]
    stages = [stage for plan in every for stage in plan.stages]
    check_size(
        n_stages=len(stages),
        n_instructions=sum(len(stage.instructions) for stage in stages),
        n_states=sum(len(plan.variables) + len(plan.resources) for plan in every),
    )
    if n_bytes > MAX_OPERANDS:  # each operand is a byte at least
        sizes = sum(len(variable.shape) for plan in messages for variable in plan.variables)
        n_operands = sum(_n_operands(one) for stage in stages for one in stage.instructions)
        check_size(n_operands=sizes + n_operands)
    return [plan_from_proto(plan) for plan in messages]


def _bodies(plan: pb_plan.Plan) -> Iterator[pb_plan.Plan]:
    """Yields the bodies of the loops of a plan, and of those inside; protobuf limits the depth."""
    for one in (one for stage in plan.stages for one in stage.instructions):
        if one.WhichOneof("kind") == "loop":
            yield one.loop.body
            yield from _bodies(one.loop.body)


def _n_operands(instruction: pb_plan.Instruction) -> int:
    """Counts the slots, variables, resources and constants that an instruction names."""
    lists: tuple[Sized, ...] = ()
    match instruction.WhichOneof("kind"):
        case "run":
            run = instruction.run
            lists = (
                *(run.reads, run.inputs, run.writes, run.initializes, run.outputs),
                *(run.before, run.after, run.defaults, run.sizes),
                *(run.program.constants, run.program.donated),
            )
        case "call":
            call = instruction.call
            lists = (call.inputs, call.outputs, call.constants, call.resources, call.variables)
        case "loop":
            lists = instruction.loop.consts, instruction.loop.carries
    return sum(map(len, lists))


def plan_from_proto(message: pb_plan.Plan) -> Plan:
    """Decodes a plan from protobuf and verifies it.

    Raises:
      InvalidArgumentError: if an instruction is of an unknown kind, a device name is incomplete, or
        the plan is not well-formed (`jflow.plan.verify`).
    """
    try:
        plan = _plan(message)
    except ValueError as error:
        raise InvalidArgumentError(f"a plan cannot be read: {error}") from None
    verify(plan)
    return plan


def _plan(message: pb_plan.Plan) -> Plan:
    variables = tuple(
        VariableSpec(VariableKey(v.container, v.name), v.dtype, tuple(v.shape), v.sharding)
        for v in message.variables
    )
    stages = tuple(
        tuple(map(_instruction_from_proto, stage.instructions)) for stage in message.stages
    )
    resources = tuple(
        ResourceSpec(r.kind, r.container, r.name, r.owner, r.definition) for r in message.resources
    )
    after = tuple(tuple(stage.after) for stage in message.stages) if message.unordered else ()
    device = Device.parse(message.device)
    return Plan(device, message.n_slots, variables, stages, resources, after)


def _instruction_to_proto(one: Instruction) -> pb_plan.Instruction:
    match one:
        case Run():
            return pb_plan.Instruction(run=_run_to_proto(one))
        case Call():
            return pb_plan.Instruction(call=pb_plan.Call(**vars(one)))
        case Loop():
            return pb_plan.Instruction(loop=_loop_to_proto(one))
        case _:
            return _transfer_to_proto(one)


def _transfer_to_proto(one: Feed | Fetch | Recv | Send) -> pb_plan.Instruction:
    match one:
        case Feed():
            return pb_plan.Instruction(feed=pb_plan.Feed(index=one.index, slot=one.slot))
        case Fetch():
            return pb_plan.Instruction(fetch=pb_plan.Fetch(index=one.index, slot=one.slot))
        case Recv():
            recv = pb_plan.Recv(edge=one.edge, source=str(one.source), slot=one.slot)
            return pb_plan.Instruction(recv=recv)
        case Send():
            send = pb_plan.Send(edge=one.edge, target=str(one.target), slot=one.slot)
            return pb_plan.Instruction(send=send)


def _loop_to_proto(loop: Loop) -> pb_plan.Loop:
    return pb_plan.Loop(
        number=loop.number,
        body=plan_to_proto(loop.body),
        trips=loop.trips,
        window=loop.window,
        stride=loop.stride,
        cycle=loop.cycle,
        consts=[pb_plan.Const(slot=slot, feed=feed) for slot, feed in loop.consts],
        carries=[pb_plan.Carry(**vars(carry)) for carry in loop.carries],
        index=loop.index,
        is_reversed=loop.is_reversed,
        op=loop.op,
        predicate=loop.predicate,
    )


def _run_to_proto(run: Run) -> pb_plan.Run:
    program = run.program
    return pb_plan.Run(
        program=None
        if program is None
        else pb_plan.Program(
            digest=program.digest, constants=program.constants, donated=program.donated
        ),
        reads=run.reads,
        inputs=run.inputs,
        writes=run.writes,
        initializes=run.initializes,
        outputs=run.outputs,
        before=[pb_plan.Held(variable=v, slot=s) for v, s in run.before],
        after=[pb_plan.Held(variable=v, slot=s) for v, s in run.after],
        op=run.op,
        defaults=[pb_plan.Defaulted(variable=v, slot=s, default=d) for v, s, d in run.defaults],
        sizes=[*map(_sizes_to_proto, run.sizes)],
    )


def _sizes_to_proto(sizes: EqualSizes) -> pb_plan.EqualSizes:
    first, second = _size_to_proto(sizes.first), sizes.second
    if isinstance(second, InputSize):
        return pb_plan.EqualSizes(op=sizes.op, first=first, second=_size_to_proto(second))
    return pb_plan.EqualSizes(op=sizes.op, first=first, size=second)


def _size_to_proto(size: InputSize) -> pb_plan.InputSize:
    return pb_plan.InputSize(input=size.input, dimension=size.dimension, tensor=size.tensor)


def _instruction_from_proto(message: pb_plan.Instruction) -> Instruction:
    match message.WhichOneof("kind"):
        case "run":
            return _run_from_proto(message.run)
        case "call":
            call = message.call
            return Call(
                call.function,
                tuple(call.inputs),
                tuple(call.outputs),
                tuple(call.constants),
                tuple(call.resources),
                call.attributes,
                call.op,
                tuple(call.variables),
            )
        case "loop":
            return _loop_from_proto(message.loop)
        case _:
            return _transfer_from_proto(message)


def _transfer_from_proto(message: pb_plan.Instruction) -> Feed | Fetch | Recv | Send:
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
        case _:
            raise InvalidArgumentError("a plan has an instruction of an unknown kind")


def _loop_from_proto(message: pb_plan.Loop) -> Loop:
    return Loop(
        message.number,
        _plan(message.body),
        message.trips,
        message.window,
        message.stride,
        message.cycle,
        tuple((one.slot, one.feed) for one in message.consts),
        tuple(
            Carry(one.init, one.feed, one.fetch, one.final if one.HasField("final") else None)
            for one in message.carries
        ),
        message.index if message.HasField("index") else None,
        message.is_reversed,
        message.op,
        message.predicate if message.HasField("predicate") else None,
    )


def _run_from_proto(message: pb_plan.Run) -> Run:
    program = None
    if message.HasField("program"):
        program_message = message.program
        program = Program(
            program_message.digest, tuple(program_message.constants), tuple(program_message.donated)
        )
    return Run(
        program=program,
        reads=tuple(message.reads),
        inputs=tuple(message.inputs),
        writes=tuple(message.writes),
        initializes=tuple(message.initializes),
        outputs=tuple(message.outputs),
        before=tuple((held.variable, held.slot) for held in message.before),
        after=tuple((held.variable, held.slot) for held in message.after),
        op=message.op,
        defaults=tuple((one.variable, one.slot, one.default) for one in message.defaults),
        sizes=tuple(map(_sizes_from_proto, message.sizes)),
    )


def _sizes_from_proto(message: pb_plan.EqualSizes) -> EqualSizes:
    second = _size_from_proto(message.second) if message.HasField("second") else message.size
    return EqualSizes(message.op, _size_from_proto(message.first), second)


def _size_from_proto(message: pb_plan.InputSize) -> InputSize:
    return InputSize(message.input, message.dimension, message.tensor)


def _slot(message: pb_plan.Recv | pb_plan.Send) -> int | None:
    return message.slot if message.HasField("slot") else None
