"""Verifier of plans, which runs before any name in a plan is looked up or compiled.

Plans come from `jflow.compiler.partition` or over the wire. `verify` checks each invariant that one
plan shows by itself; `verify_step` checks how the plans of a step fit together. Which functions,
programs, constants and kinds of resources exist is checked by `jflow.task.execution.link`, and the
values of arguments by kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from jflow.base.cluster import Device
from jflow.base.values import NUMBERS
from jflow.errors import InvalidArgumentError, ResourceExhaustedError
from jflow.plan.plan import (
    CALLBACK,
    NAN_CHECK,
    VARYING,
    Call,
    EqualSizes,
    Feed,
    Fetch,
    InputSize,
    Instruction,
    Plan,
    Program,
    Recv,
    Run,
    Send,
    VariableKey,
    fetch_indices,
)

MAX_SLOTS = 1 << 20
"""Maximum number of slots of a plan; a task allocates all of them for each step. Something has to
fill all but `SPARE_SLOTS` of them, so that a small plan cannot ask for many."""

SPARE_SLOTS = 64

MAX_STAGES = 1 << 16
"""Maximum number of stages of the plans that are registered together. A stage is 2 bytes of a
message, and some kilobytes of a task in each step. A step of 100,000 operations has a few thousand,
unless devices alternate."""

MAX_INSTRUCTIONS = 1 << 17
"""Maximum number of instructions of these plans. What XLA computes between two transfers is one of
them; only operations on strings, files and queues are one each."""

MAX_OPERANDS = 1 << 19
"""Maximum number of slots, variables, resources and constants that these instructions name, all
together, with repeats. Each is a byte of a message, and some 40 bytes of a task for as long as the
plans are registered. An operation on strings names a few of them."""

MAX_STATES = 1 << 16
"""Maximum number of entries in the tables of variables and resources of these plans. An empty one
is 2 bytes of a message, and some hundred bytes of a task."""

MAX_DEPENDENCIES = 1 << 18
"""Maximum number of stages that the stages of a plan are said to come after, all together; and how
many of them the verifier looks at to find out whether one stage comes after another."""


def verify(plan: Plan) -> None:
    """Checks that a plan is well-formed.

    Raises:
      InvalidArgumentError: names the device, and the instruction, slot, variable or stage.
    """
    _PlanVerifier(plan).verify()


def check_size(
    *, n_stages: int = 0, n_instructions: int = 0, n_operands: int = 0, n_states: int = 0
) -> None:
    """Rejects plans that exceed the limits of their size, before they are read.

    Args:
      n_stages, n_instructions, n_operands, n_states: how much of each all plans have that are
        registered together; see the limits.

    Raises:
      ResourceExhaustedError: if there is too much of one.
    """
    for n, limit, what in (
        (n_stages, MAX_STAGES, "stages"),
        (n_instructions, MAX_INSTRUCTIONS, "instructions"),
        (n_operands, MAX_OPERANDS, "operands of instructions"),
        (n_states, MAX_STATES, "variables and resources"),
    ):
        if n > limit:
            raise ResourceExhaustedError(
                f"the plans of a step have {n} {what}; the limit is {limit}; divide the step, or "
                "place more of its operations on one device"
            )


def verify_step(plans: Sequence[Plan], n_fetches: int) -> None:
    """Checks that verified plans form a complete step.

    Each value that a device receives is sent by the device that it names, in an earlier stage, so
    that the step cannot deadlock with itself.

    Args:
      plans: one for each device of the step.
      n_fetches: how many values the step returns.

    Raises:
      InvalidArgumentError: names the devices and the edge, or the fetched values.
    """
    fetches = [index for plan in plans for index in fetch_indices([plan])]
    if len(fetches) != n_fetches or sorted(fetches) != list(range(len(fetches))):
        raise InvalidArgumentError(
            f"a step of {n_fetches} fetched values came with plans that give {fetches[:100]}"
        )
    devices = set()
    for plan in plans:
        if plan.device in devices:
            raise InvalidArgumentError(f"a step has two plans for {plan.device}")
        devices.add(plan.device)
    _verify_edges(plans)


_Edge = tuple[int, Device, Device]
"""A transfer: its number, the sending and the receiving device."""


def _verify_edges(plans: Sequence[Plan]) -> None:
    sends: dict[_Edge, tuple[int, bool]] = {}
    receives: dict[_Edge, tuple[int, bool]] = {}
    senders: dict[int, Device] = {}
    for plan in plans:
        for number, stage in enumerate(plan.stages):
            for one in stage:
                if isinstance(one, Send):
                    sends[one.edge, plan.device, one.target] = number, one.slot is None
                    if senders.setdefault(one.edge, plan.device) != plan.device:
                        raise InvalidArgumentError(
                            f"{senders[one.edge]} and {plan.device} both send as edge {one.edge}"
                        )
                elif isinstance(one, Recv):
                    receives[one.edge, one.source, plan.device] = number, one.slot is None
    for (edge, source, target), (taken, is_signal) in receives.items():
        sent = sends.pop((edge, source, target), None)
        if sent is None:
            raise InvalidArgumentError(
                f"the plan for {target} receives edge {edge} from {source}, which does not send it"
            )
        if sent[0] >= taken:
            raise InvalidArgumentError(
                f"the plan for {target} receives edge {edge} in stage {taken}, and {source} sends "
                f"it in stage {sent[0]}; expected an earlier stage"
            )
        if sent[1] != is_signal:
            raise InvalidArgumentError(
                f"edge {edge} from {source} to {target} is a signal at one end and a value at the "
                "other"
            )
    for edge, source, target in sends:
        raise InvalidArgumentError(
            f"the plan for {source} sends edge {edge} to {target}, which does not receive it"
        )


class _PlanVerifier:
    """Walks a plan in execution order and tracks which slots are filled, and in which stage."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._filled: dict[Any, int] = {}
        """The stage that fills each slot; -1 for feeds, which are available from the start."""
        self._edges: set[Any] = set()
        self._fetched: set[Any] = set()
        self._stage = 0
        self._n_walked = 0
        self._named: frozenset[int] = frozenset()
        self._ancestors: set[int] | None = None

    def verify(self) -> None:
        plan = self._plan
        if not isinstance(plan.device, Device):
            self._fail(f"the device is not a full device name: {plan.device!r}")
        if not _is_index(plan.n_slots, MAX_SLOTS + 1):
            self._fail(f"it has {plan.n_slots} slots; the limit is {MAX_SLOTS}")
        for variable in plan.variables:
            self._check_variable(variable)
        for resource in plan.resources:
            self._check_resource(resource)
        self._check_after()
        for one in plan.instructions:
            if isinstance(one, Feed):
                self._check_slot(one.slot, one)
                self._check_index(one.index, one)
                self._fill(one.slot, -1, one)
        for number, stage in enumerate(plan.stages):
            self._stage, self._ancestors = number, None
            self._named = frozenset(self._plan.after[number]) if self._plan.after else frozenset()
            for one in stage:
                self._check(one)
        for one in plan.instructions:
            if isinstance(one, Fetch) and one.slot not in self._filled:
                self._fail(f"nothing fills slot {one.slot}", one)
        if plan.n_slots > len(self._filled) + SPARE_SLOTS:
            self._fail(f"it has {plan.n_slots} slots, of which {len(self._filled)} are filled")

    def _fail(self, what: str, instruction: Instruction | None = None) -> NoReturn:
        where = f"the plan for {self._plan.device}"
        if instruction is None:
            raise InvalidArgumentError(f"{where}: {what}")
        op = getattr(instruction, "op", None) or None
        raise InvalidArgumentError(f"{where}: {what}, in `{instruction}`", op=op)

    # Tables -----------------------------------------------------------------------------------

    def _check_variable(self, variable: Any) -> None:
        key = variable.key
        if not (isinstance(key, VariableKey) and _are_texts((key.container, key.name))):
            self._fail(f"a variable has no name: {key!r}")
        dtype = variable.dtype
        if not isinstance(dtype, str) or (dtype not in NUMBERS and not dtype.startswith("key<")):
            self._fail(f"{key} has the unknown dtype {variable.dtype!r}")
        if not all(_is_index(size, VARYING + 1) for size in variable.shape):
            self._fail(f"{key} has the shape {variable.shape}; expected sizes of 0 or more")

    def _check_resource(self, spec: Any) -> None:
        if not _are_texts((spec.kind, spec.container, spec.name, spec.owner)) or not spec.kind:
            self._fail(f"a resource has no kind, container, name and owner: {spec!r:.200}")

    def _check_after(self) -> None:
        after, n_stages = self._plan.after, len(self._plan.stages)
        if after and len(after) != n_stages:
            self._fail(f"it has {n_stages} stages and an order of {len(after)}")
        if sum(map(len, after)) > MAX_DEPENDENCIES:
            self._fail(f"its order names more than {MAX_DEPENDENCIES} stages; expected fewer")
        for number, needed in enumerate(after):
            for one in needed:
                if not _is_index(one, number):
                    self._fail(f"stage {number} runs after stage {one}; expected an earlier stage")
            if len({*needed}) < len(needed):
                self._fail(f"stage {number} runs after a stage that it names twice")

    # Slots ------------------------------------------------------------------------------------

    def _check_slot(self, slot: Any, instruction: Instruction) -> None:
        if not _is_index(slot, self._plan.n_slots):
            self._fail(f"slot {slot} is out of range of {self._plan.n_slots} slots", instruction)

    def _fill(self, slot: Any, stage: int, instruction: Instruction) -> None:
        if slot in self._filled:
            self._fail(f"slot {slot} is filled a second time", instruction)
        self._filled[slot] = stage

    def _read(self, slot: Any, instruction: Instruction) -> None:
        stage = self._filled.get(slot)
        if stage is None:
            self._fail(f"slot {slot} is read before it is filled", instruction)
        if not self._is_done(stage):
            self._fail(
                f"slot {slot} is filled in stage {stage}, which stage {self._stage} does not come "
                "after",
                instruction,
            )

    def _is_done(self, stage: int) -> bool:
        """Whether an earlier stage is certain to have run before the current one."""
        after = self._plan.after
        if not after or stage < 0 or stage == self._stage or stage in self._named:
            return True
        if self._ancestors is None:
            # Plans that jflow builds name every stage that they read from, so this walk is rare.
            self._ancestors, pending = set(), [self._stage]
            while pending:
                needed = after[pending.pop()]
                self._n_walked += len(needed)
                if self._n_walked > MAX_DEPENDENCIES:
                    self._fail("too many of its stages read from stages that they do not name")
                new = set(needed) - self._ancestors
                self._ancestors |= new
                pending.extend(new)
        return stage in self._ancestors

    # Instructions -----------------------------------------------------------------------------

    def _check(self, one: Instruction) -> None:
        for slot in _slots(one):
            self._check_slot(slot, one)
        match one:
            case Feed():
                pass
            case Fetch():
                self._check_index(one.index, one)
                if one.index in self._fetched:
                    self._fail(f"value {one.index} is fetched twice", one)
                self._fetched.add(one.index)
            case Send():
                self._check_edge(one.edge, one.target, one)
                if one.slot is not None:
                    self._read(one.slot, one)
            case Recv():
                self._check_edge(one.edge, one.source, one)
                if one.slot is not None:
                    self._fill(one.slot, self._stage, one)
            case Run():
                self._check_run(one)
            case Call():
                self._check_call(one)
            case _:
                self._fail(f"{one!r} is not an instruction")

    def _check_index(self, index: Any, one: Instruction) -> None:
        if not _is_index(index, 1 << 32):
            self._fail(f"{index} is not the number of a value", one)

    def _check_edge(self, edge: Any, peer: Any, one: Instruction) -> None:
        if not isinstance(peer, Device):
            self._fail(f"{peer!r} is not a full device name", one)
        if peer == self._plan.device:
            self._fail("a device does not send to itself", one)
        if not _is_index(edge, 1 << 32):
            self._fail(f"{edge} is not the number of an edge", one)
        # A value that goes to several devices is a separate edge for each.
        if edge in self._edges:
            self._fail(f"edge {edge} is used twice", one)
        self._edges.add(edge)

    def _check_run(self, run: Run) -> None:
        self._check_variables(run)
        if run.program is not None:
            self._check_program(run.program, run)
        elif run.writes or run.outputs:
            self._fail("it has outputs but no program", run)
        self._check_text(run.op, "the name of an operation", run)
        for sizes in run.sizes:
            self._check_sizes(sizes, run)
        # Values from before the update may be inputs of the same program.
        for _, slot in run.before:
            self._fill(slot, self._stage, run)
        for slot in (*run.inputs, *(default for _, _, default in run.defaults)):
            self._read(slot, run)
        default_slots = (slot for _, slot, _ in run.defaults)
        for slot in (*run.outputs, *(slot for _, slot in run.after), *default_slots):
            self._fill(slot, self._stage, run)

    def _check_sizes(self, sizes: EqualSizes, run: Run) -> None:
        self._check_text(sizes.op, "the name of an operation", run)
        for one in (sizes.first, sizes.second):
            if isinstance(one, InputSize):
                self._check_text(one.tensor, "the name of a tensor", run)
                if not _is_index(one.input, len(run.inputs)) or not _is_index(one.dimension, 256):
                    self._fail(f"{one} is not a size of an input", run)
            elif not _is_index(one, 1 << 64):
                self._fail(f"{one!r} is not a size", run)

    def _check_variables(self, run: Run) -> None:
        copied_variables = (variable for variable, _ in (*run.before, *run.after))
        default_variables = (variable for variable, _, _ in run.defaults)
        self._check_numbers(
            (*run.reads, *run.writes, *run.initializes, *copied_variables, *default_variables), run
        )
        if len({*run.reads}) < len(run.reads) or len({*run.writes}) < len(run.writes):
            self._fail("it reads or writes a variable twice", run)
        if not {*run.initializes} <= {*run.writes}:
            self._fail("it initializes a variable that it does not write", run)
        if not {variable for variable, _ in run.after} <= {*run.writes}:
            self._fail("it holds the new value of a variable that it does not write", run)

    def _check_numbers(self, variables: Iterable[Any], one: Instruction) -> None:
        n_variables = len(self._plan.variables)
        for variable in variables:
            if not _is_index(variable, n_variables):
                self._fail(f"variable {variable} is out of range of {n_variables} variables", one)

    def _check_program(self, program: Program, run: Run) -> None:
        self._check_names((program.digest, *program.constants), "digests", run)
        written = frozenset(run.writes)
        for argument in program.donated:
            # Only a variable that gets a new value may lose its memory: slots are read again.
            is_read = _is_index(argument, len(run.reads))
            if not is_read or run.reads[argument] not in written:
                self._fail(f"argument {argument} is donated but is not an updated variable", run)
        if len({*program.donated}) < len(program.donated):
            self._fail("it donates an argument twice", run)

    def _check_call(self, call: Call) -> None:
        self._check_names((call.function,), "the name of a function", call)
        self._check_names(call.constants, "digests", call)
        self._check_text(call.op, "the name of an operation", call)
        self._check_numbers(call.variables, call)
        if call.variables and (call.resources or call.function == CALLBACK):
            self._fail("only a function without resources asks for variables", call)
        n_resources = len(self._plan.resources)
        for resource in call.resources:
            if not _is_index(resource, n_resources):
                self._fail(f"resource {resource} is out of range of {n_resources} resources", call)
        for slot in call.inputs:
            self._read(slot, call)
        if call.function == NAN_CHECK and call.outputs:
            self._fail("a check for NaN has no outputs", call)
        for slot in call.outputs:
            self._fill(slot, self._stage, call)

    def _check_names(self, names: Iterable[Any], what: str, one: Instruction) -> None:
        for name in names:
            if not isinstance(name, str) or not name:
                self._fail(f"expected {what}, got {name!r}", one)

    def _check_text(self, text: Any, what: str, one: Instruction) -> None:
        if not isinstance(text, str):
            self._fail(f"expected {what}, got {text!r}", one)


def _slots(one: Instruction) -> Iterable[Any]:
    """Returns the slots that an instruction fills or reads."""
    match one:
        case Run():
            held = (slot for _, slot in (*one.before, *one.after))
            return *one.inputs, *one.outputs, *held, *(s for _, *both in one.defaults for s in both)
        case Call():
            return *one.inputs, *one.outputs
        case Send() | Recv():
            return () if one.slot is None else (one.slot,)
        case Fetch():
            return (one.slot,)
    return ()


def _is_index(number: Any, end: int) -> bool:
    """Whether `number` is an int with 0 <= number < end."""
    return type(number) is int and 0 <= number < end


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
