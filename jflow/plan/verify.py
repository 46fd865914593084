"""Verifier of plans, which runs before any name in a plan is looked up or compiled.

Plans come from `jflow.compiler.partition` or over the wire. `verify` checks each invariant that one
plan shows by itself; `verify_step.py` checks how the plans of a step fit together. Which functions,
programs, constants and kinds of resources exist is checked by `jflow.task.execution.link`, and the
values of arguments by kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, NoReturn

from jflow.base.cluster import Device
from jflow.base.values import NUMBERS
from jflow.errors import InvalidArgumentError, ResourceExhaustedError
from jflow.plan.callbacks import CALLBACK
from jflow.plan.plan import (
    MAX_EDGES,
    MAX_TRIPS,
    NAN_CHECK,
    Call,
    EqualSizes,
    Feed,
    Fetch,
    InputSize,
    Instruction,
    Loop,
    Plan,
    Program,
    Recv,
    Run,
    Send,
)
from jflow.plan.state import VARYING, VariableKey, check_sharding
from jflow.plan.uses import slots_filled, slots_of_variables, slots_read

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


MAX_WINDOW = 1 << 12
"""Maximum number of iterations of a loop that may be under way on a device."""

MAX_LOOP_DEPTH = 8
"""Maximum number of loops inside of each other."""

MAX_UNDER_WAY = 1 << 18
"""Maximum number of slots and stages of all iterations of a plan that may be under way, those of
inner loops in each iteration of the outer ones."""


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


class _PlanVerifier:
    """Walks a plan in execution order and tracks which slots are filled, and in which stage.

    Args:
      plan: the plan.
      loop: the loop that it is the body of; None if it is the plan of a device.
      depth: in how many loops it is.
      outer: the plan whose variables and resources its instructions refer to; itself if None.
    """

    def __init__(
        self, plan: Plan, loop: Loop | None = None, depth: int = 0, outer: Plan | None = None
    ) -> None:
        self._depth = depth
        self._outer = outer or plan
        self._plan = plan
        self._loop = loop
        self._filled: dict[Any, int] = {}
        """The stage that fills each slot; -1 for feeds, which are available from the start."""
        self._edges: set[Any] = set()
        self._fetched: set[Any] = set()
        self._stage = 0
        self._n_walked = 0
        self._named: frozenset[int] = frozenset()
        self._ancestors: set[int] | None = None
        self._once: Collection[int] | None = None

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
        self._check_filled()
        if self._loop is None and (n_under_way := _n_under_way(plan)) > MAX_UNDER_WAY:
            self._fail(
                f"iterations with {n_under_way} slots and stages in all may be under way; the "
                f"limit is {MAX_UNDER_WAY}; choose a smaller window"
            )
        if self._loop is not None:
            self._check_body(self._loop)

    def _check_filled(self) -> None:
        plan = self._plan
        for one in plan.instructions:
            if isinstance(one, Fetch) and one.slot not in self._filled:
                self._fail(f"nothing fills slot {one.slot}", one)
        if plan.n_slots > len(self._filled) + SPARE_SLOTS:
            self._fail(f"it has {plan.n_slots} slots, of which {len(self._filled)} are filled")

    def _check_body(self, loop: Loop) -> None:
        plan = self._plan
        if plan.variables or plan.resources:
            self._fail("the body of a loop names variables or resources")
        if not plan.stages or len(plan.after) != len(plan.stages):
            self._fail("the body of a loop is not in dataflow order, or has no stages")
        carried = [carry.feed for carry in loop.carries]
        index = [] if loop.index is None else [loop.index]
        given = sorted([*(feed for _, feed in loop.consts), *carried, *index])
        feeds = sorted(one.index for one in plan.instructions if isinstance(one, Feed))
        if given != feeds:
            self._fail(f"its feeds are {feeds[:100]}, and the loop has values for {given[:100]}")
        fetches = [one for one in plan.instructions if isinstance(one, Fetch)]
        held = {slot for one in plan.instructions for slot in slots_of_variables(one)}
        for one in fetches:
            if self._filled[one.slot] < 0:
                self._fail("the next value of a carry is a fed value", one)
            if one.slot in held:
                self._fail("the next value of a carry is that of a variable, not a copy", one)
        is_predicate = (one.slot == loop.predicate for one in fetches)
        n_fetched = len({carry.fetch for carry in loop.carries}) + any(is_predicate)
        if not {carry.fetch for carry in loop.carries} <= self._fetched or n_fetched != len(
            self._fetched
        ):
            self._fail("the values that it fetches are not the carries of the loop")
        if loop.predicate is not None and loop.predicate not in self._filled:
            self._fail(f"nothing fills slot {loop.predicate}, the predicate of the loop")

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
        try:
            check_sharding(variable.sharding, self._plan.device.axes, len(variable.shape))
        except ValueError as error:
            self._fail(f"{key}: {error}")

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
        for slot in (*slots_filled(one), *slots_read(one)):
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
            case Loop():
                self._check_loop(one)
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
        if not _is_index(edge, MAX_EDGES):
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
        n_variables = len(self._outer.variables)
        for variable in variables:
            if not _is_index(variable, n_variables):
                self._fail(f"variable {variable} is out of range of {n_variables} variables", one)

    def _check_program(self, program: Program, run: Run) -> None:
        self._check_names((program.digest, *program.constants), "digests", run)
        written, n_reads = frozenset(run.writes), len(run.reads)
        for argument in program.donated:
            # Only a variable that gets a new value may lose its memory, and a carry of which this
            # is the only use: other slots are read again.
            if _is_index(argument, n_reads):
                may_be = run.reads[argument] in written
            else:
                is_input = _is_index(argument, n_reads + len(run.inputs))
                may_be = is_input and run.inputs[argument - n_reads] in self._used_once()
            if not may_be:
                self._fail(
                    f"argument {argument} is donated but is neither an updated variable nor a "
                    "carry that nothing else uses",
                    run,
                )
        if len({*program.donated}) < len(program.donated):
            self._fail("it donates an argument twice", run)

    def _used_once(self) -> Collection[int]:
        """Returns the slots of carries that one instruction uses."""
        if self._loop is None:
            return ()
        if self._once is None:
            carried = {carry.feed for carry in self._loop.carries}
            used = Counter(
                slot
                for one in self._plan.instructions
                if not isinstance(one, Feed)
                for slot in (*slots_filled(one), *slots_read(one))
            )
            feeds = (one for one in self._plan.instructions if isinstance(one, Feed))
            self._once = {x.slot for x in feeds if x.index in carried and used[x.slot] == 1}
        return self._once

    def _check_loop(self, loop: Loop) -> None:
        if self._depth == MAX_LOOP_DEPTH:
            self._fail(f"loops are more than {MAX_LOOP_DEPTH} deep inside of each other", loop)
        self._check_text(loop.op, "the name of an operation", loop)
        for number, least, end, what in (
            (loop.number, 0, 1 << 32, "number"),
            (loop.trips, 1, MAX_TRIPS + 1, "number of iterations"),
            (loop.window, 1, MAX_WINDOW + 1, "window"),
            (loop.stride, 1, MAX_EDGES, "stride"),
            (loop.cycle, loop.window, MAX_EDGES // max(loop.stride, 1) + 1, "cycle"),
        ):
            if not (_is_index(number, end) and number >= least):
                self._fail(f"the {what} of a loop is {number}; expected {least} to {end - 1}")
        for slot in loop.inputs:
            self._read(slot, loop)
        for slot in loop.outputs:
            self._fill(slot, self._stage, loop)
        if loop.body.device != self._plan.device:
            self._fail(f"the body of a loop is for {loop.body.device}")
        _PlanVerifier(loop.body, loop, self._depth + 1, self._outer).verify()

    def _check_call(self, call: Call) -> None:
        self._check_names((call.function,), "the name of a function", call)
        self._check_names(call.constants, "digests", call)
        self._check_text(call.op, "the name of an operation", call)
        self._check_numbers(call.variables, call)
        if call.variables and (call.resources or call.function == CALLBACK):
            self._fail("only a function without resources asks for variables", call)
        n_resources = len(self._outer.resources)
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


def _n_under_way(plan: Plan) -> int:
    """Returns how many slots and stages the iterations of a plan's loops may have at once."""
    return sum(
        loop.window * (loop.body.n_slots + len(loop.body.stages) + _n_under_way(loop.body))
        for loop in plan.loops
    )


def _is_index(number: Any, end: int) -> bool:
    """Whether `number` is an int with 0 <= number < end."""
    return type(number) is int and 0 <= number < end


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
