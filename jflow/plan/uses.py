"""What instructions use: slots, and state."""

from __future__ import annotations

from jflow.plan.plan import Call, Feed, Fetch, Instruction, Loop, Recv, Run, Send, Slot


def uses_state(one: Instruction) -> bool:
    """Whether an instruction, or the body of a loop, uses variables or resources."""
    match one:
        case Loop():
            return any(map(uses_state, one.body.all_instructions))
        case Run():
            return bool(one.reads or one.writes or one.before or one.defaults)
        case Call():
            return bool(one.resources or one.variables)
    return False


def slots_of_variables(one: Instruction) -> tuple[Slot, ...]:
    """Returns the slots that an instruction fills with the buffers of variables."""
    if not isinstance(one, Run):
        return ()
    held = (slot for _, slot in (*one.before, *one.after))
    return *held, *(slot for _, slot, _ in one.defaults)


def slots_filled(one: Instruction) -> tuple[Slot, ...]:
    """Returns the slots that an instruction fills."""
    match one:
        case Run():
            return *one.outputs, *slots_of_variables(one)
        case Call() | Loop():
            return one.outputs
        case Recv() | Feed():
            return () if one.slot is None else (one.slot,)
    return ()


def slots_read(one: Instruction) -> tuple[Slot, ...]:
    """Returns the slots that an instruction reads."""
    match one:
        case Run():
            return *one.inputs, *(default for _, _, default in one.defaults)
        case Call() | Loop():
            return one.inputs
        case Send() | Fetch():
            return () if one.slot is None else (one.slot,)
    return ()
