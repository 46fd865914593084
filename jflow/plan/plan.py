"""A plan: the instructions that one device runs in a step.

A plan is a short list of instructions around a few large XLA programs. Values are held in numbered
slots, which exist for one step only. Variables live in containers; instructions refer to them by
their position in the plan's table.

The order of the instructions cannot deadlock: every value that an instruction receives is sent by
instructions that do not depend on it (see `jflow.compiler.partition`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType

from jflow.base.cluster import Device
from jflow.base.packing import pack
from jflow.plan import text as notation
from jflow.plan.state import ResourceSpec, VariableSpec

Slot = int

MAX_TRIPS = (1 << 31) - 1
"""The largest number of iterations of a loop."""

MAX_EDGES = 1 << 32
"""The number of edges that a step can have; those of a loop count once for each iteration."""

NAN_CHECK = "check_nans"
"""Function name of a `Call` that fails if an input is NaN, for `jax_debug_nans`."""


NO_ATTRIBUTES = pack({})
"""The attributes of a `Call` that has no named arguments."""


_NO_SIGNATURES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Feed:
    """Puts fed value number `index` of the step into a slot."""

    index: int
    slot: Slot

    def __str__(self) -> str:
        return f"{notation.slot_name(self.slot)} = feed {self.index}"


@dataclass(frozen=True)
class Recv:
    """Receives the value that `source` sends as `edge`; `slot` is None for a signal."""

    edge: int
    source: Device
    slot: Slot | None

    def __str__(self) -> str:
        prefix = "receive signal" if self.slot is None else f"%{self.slot} = receive"
        return f"{prefix} from {self.source} as edge {self.edge}"


@dataclass(frozen=True)
class Program:
    """An XLA program, named by its digest.

    Attributes:
      digest: digest of the exported code.
      constants: digests of arrays that the code takes as its last arguments; small constants are
        part of the code.
      donated: positions of the arguments whose memory the results may reuse.
    """

    digest: str
    constants: tuple[str, ...] = ()
    donated: tuple[int, ...] = ()

    def __str__(self) -> str:
        return notation.short_digest(self.digest)


@dataclass(frozen=True)
class InputSize:
    """A dimension of an input of a program.

    Attributes:
      input: the position of the input.
      dimension: the position of the size in its shape.
      tensor: the name of the tensor, for messages.
    """

    input: int
    dimension: int
    tensor: str

    def __str__(self) -> str:
        return f"dimension {self.dimension} of {self.tensor!r}"


@dataclass(frozen=True)
class EqualSizes:
    """Two sizes that must be equal for an operation of a program.

    Attributes:
      op: name of the operation.
      first: a size.
      second: another size, or the number that it must be.
    """

    op: str
    first: InputSize
    second: InputSize | int

    def __str__(self) -> str:
        return f"{self.first} is {self.second}"


@dataclass(frozen=True)
class Run:
    """Runs a program and updates variables, in one critical section of these variables.

    The program takes the old values of `reads`, then `inputs`, then its constants. It returns the
    new values of `writes`, then `outputs`. A variable that is both read and written is updated in
    place.

    Attributes:
      program: the program, or None if there is nothing to compute.
      reads, writes: numbers of variables.
      initializes: the written variables that keep their value if they have one.
      inputs, outputs: slots.
      before: (variable, slot) pairs; the slot is filled with the value before the update.
      after: (variable, slot) pairs; the slot is filled with the value after the update.
      defaults: (variable, slot, default) triples; the slot is filled with the value before the
        update, or with that of the slot `default` if the variable is not initialized.
      op: name of the operation that writes the first of `writes`, else of another operation of
        the program, for messages.
      sizes: sizes of the inputs that must be equal.
    """

    program: Program | None
    reads: tuple[int, ...] = ()
    inputs: tuple[Slot, ...] = ()
    writes: tuple[int, ...] = ()
    outputs: tuple[Slot, ...] = ()
    before: tuple[tuple[int, Slot], ...] = ()
    after: tuple[tuple[int, Slot], ...] = ()
    initializes: tuple[int, ...] = ()
    op: str = field(default="", compare=False)
    defaults: tuple[tuple[int, Slot, Slot], ...] = ()
    sizes: tuple[EqualSizes, ...] = ()

    def __str__(self) -> str:
        program = self.program
        constants = () if program is None else program.constants
        arguments = [
            *notation.variable_names(self.reads),
            *notation.slot_names(self.inputs),
            *notation.constant_names(constants),
        ]
        donated = [arguments[i] for i in program.donated if i < len(arguments)] if program else []
        initialized = notation.variable_names(self.initializes)
        clauses = [
            *([f"donates {', '.join(donated)}"] if donated else []),
            *([f"initializes {', '.join(initialized)}"] if initialized else []),
            *notation.held_names(self.before, "before"),
            *notation.held_names(self.after, "after"),
            *(f"%{slot} = v{i} before, else %{default}" for i, slot, default in self.defaults),
            *map(str, self.sizes),
        ]
        results = [*notation.variable_names(self.writes), *notation.slot_names(self.outputs)]
        what = "run nothing" if program is None else f"run {program}"
        return notation.instruction_line(results, what, arguments, clauses, self.op)


@dataclass(frozen=True)
class Call:
    """Calls a function on the host of the task.

    Attributes:
      function: name of the function, which the worker looks up.
      inputs, outputs: slots.
      constants: digests of arrays that the function takes as its last arguments.
      resources: numbers of the resources that it uses; the call may have to wait for them.
      attributes: its named arguments, packed.
      op: name of the operation in the user's graph, for messages.
      variables: numbers of variables; the function's first arguments, one bool each, say whether
        they are initialized.
    """

    function: str
    inputs: tuple[Slot, ...] = ()
    outputs: tuple[Slot, ...] = ()
    constants: tuple[str, ...] = ()
    resources: tuple[int, ...] = ()
    attributes: bytes = NO_ATTRIBUTES
    op: str = ""
    variables: tuple[int, ...] = ()

    def __str__(self) -> str:
        arguments = [
            *(f"has {name}" for name in notation.variable_names(self.variables)),
            *notation.slot_names(self.inputs),
            *notation.constant_names(self.constants),
        ]
        used = ", ".join(f"r{number}" for number in self.resources)
        attributes = notation.attributes_text(self.attributes)
        clauses = [*([f"on {used}"] if used else []), *([attributes] if attributes else [])]
        results = notation.slot_names(self.outputs)
        what = f"call {self.function}"
        return notation.instruction_line(results, what, arguments, clauses, self.op)


@dataclass(frozen=True)
class Send:
    """Sends a slot's value, or a signal if `slot` is None, to `target` as `edge`."""

    edge: int
    target: Device
    slot: Slot | None

    def __str__(self) -> str:
        return f"send {notation.slot_name(self.slot)} to {self.target} as edge {self.edge}"


@dataclass(frozen=True)
class Fetch:
    """Returns a slot's value as fetched value number `index` of the step."""

    slot: Slot
    index: int

    def __str__(self) -> str:
        return f"fetch {self.index} = {notation.slot_name(self.slot)}"


@dataclass(frozen=True)
class Carry:
    """A value that each iteration of a loop takes from the one before.

    Attributes:
      init: the slot of the plan that has its value before the first iteration.
      feed: the number of the fed value of the body that it is in an iteration.
      fetch: the number of the fetched value of the body that it is in the next iteration.
      final: the slot of the plan that is filled with its value after the last iteration; None if
        nothing needs that.
    """

    init: Slot
    feed: int
    fetch: int
    final: Slot | None

    def __str__(self) -> str:
        final = "" if self.final is None else f"%{self.final} = "
        return f"{final}carry(%{self.init}, feed {self.feed}, fetch {self.fetch})"


@dataclass(frozen=True)
class Loop:
    """Runs a device's part of the body of a loop, once for each iteration.

    All devices that take part have such an instruction in the same stage. Iterations overlap: a
    stage of the body begins as soon as the stages of the same iteration that it needs, and those of
    the iteration before that make the carries that it reads, have ended. `window` bounds how many
    iterations are under way on a device.

    With a predicate an iteration is run only if its value in that iteration is true; the loop ends
    before the first one in which it is not. Only stages that the predicate does not come before run
    in that one.

    In iteration i an edge `e` of the body is the edge `e + stride * (i % cycle)` of the plan. The
    edges of a body are less than its stride, so those of iterations under way differ.

    Attributes:
      number: identifies the loop in its step.
      body: the plan of one iteration, in dataflow order. It names no variables and resources: its
        instructions refer to those of the plan that the loop is in, or the loops around it.
      trips: the number of iterations, or the largest with a predicate; at least 1.
      window: how many iterations may be under way on this device, at least 1.
      stride: more than the edges of the body, with those of inner loops in their iterations.
      cycle: after how many iterations edges have the same numbers again; more than `window`.
      consts: (slot, feed) pairs: a slot of the plan, and the number of the fed value of the body
        that its value is in every iteration.
      carries: values that go from iteration to iteration.
      index: the number of the fed value of the body that is the number of the iteration, as
        int32[]; None if the body does not need it.
      is_reversed: whether that number counts down to 0.
      op: name of the operation in the user's graph, for messages.
      predicate: the slot of the body that says whether an iteration is run, as bool[]; None if all
        are.
    """

    number: int
    body: Plan
    trips: int
    window: int
    stride: int
    cycle: int
    consts: tuple[tuple[Slot, int], ...] = ()
    carries: tuple[Carry, ...] = ()
    index: int | None = None
    is_reversed: bool = False
    op: str = ""
    predicate: Slot | None = None

    @property
    def inputs(self) -> tuple[Slot, ...]:
        """The slots of the plan that it reads."""
        return (*(slot for slot, _ in self.consts), *(carry.init for carry in self.carries))

    @property
    def outputs(self) -> tuple[Slot, ...]:
        """The slots of the plan that it fills."""
        return tuple(one.final for one in self.carries if one.final is not None)

    def edge(self, edge: int, iteration: int) -> int:
        """Returns the edge of the plan that an edge of the body is in an iteration."""
        return edge + self.stride * (iteration % self.cycle)

    def __str__(self) -> str:
        order = ", reversed" if self.is_reversed else ""
        index = [] if self.index is None else [f"feed {self.index} = iteration"]
        clauses = [f"feed {feed} = %{slot}" for slot, feed in self.consts]
        most = "" if self.predicate is None else f", while its %{self.predicate}"
        trips = "" if self.trips == MAX_TRIPS else f" of {self.trips} iterations"
        title = f"loop {self.number}{trips}{order}{most}, {self.window} at once"
        parts = "; ".join((title, *index, *clauses, *map(str, self.carries)))
        return f"{parts}" + (f"   [op {self.op!r}]" if self.op else "")


Instruction = Feed | Recv | Run | Call | Send | Fetch | Loop


@dataclass(frozen=True)
class Plan:
    """The instructions of one device in a step, and its slots.

    Feeds fill their slots before the first instruction, fetches read theirs after the last. Each
    slot is filled once. An instruction reads only slots that are filled before it runs: by a feed,
    by an earlier instruction of its stage, or in a stage that ends before. `jflow.plan.verify`
    checks this.

    Attributes:
      device: the device.
      n_slots: number of slots.
      variables: the variables that it uses; instructions refer to them by position.
      resources: the resources that it uses, likewise.
      stages: instructions by stage. Stage s needs only values that stages before s sent, on any
        device.
      after: for each stage the stages that must end before it starts (dataflow order). Empty if
        the stages run one after another (sequential order).
    """

    device: Device
    n_slots: int
    variables: tuple[VariableSpec, ...]
    stages: tuple[tuple[Instruction, ...], ...]
    resources: tuple[ResourceSpec, ...] = ()
    after: tuple[tuple[int, ...], ...] = ()

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions in order."""
        return tuple(instruction for stage in self.stages for instruction in stage)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops among its instructions."""
        return tuple(one for one in self.instructions if isinstance(one, Loop))

    @property
    def all_instructions(self) -> tuple[Instruction, ...]:
        """All instructions, and after them those of the bodies of its loops."""
        own = self.instructions
        bodies = (one.body.all_instructions for one in own if isinstance(one, Loop))
        return tuple(chain(own, *bodies))

    def mapped(self, change: Callable[[Instruction], Instruction]) -> Plan:
        """Returns the plan with each instruction changed, first those in the bodies of loops."""

        def changed(one: Instruction) -> Instruction:
            return change(
                replace(one, body=one.body.mapped(change)) if isinstance(one, Loop) else one
            )

        return replace(self, stages=tuple(tuple(map(changed, stage)) for stage in self.stages))

    @property
    def artifacts(self) -> frozenset[str]:
        """Digests of all programs and constants that the plan names."""
        return frozenset({program.digest for program in self.programs} | {*self.constants})

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs that the plan runs, without duplicates."""
        runs = (one.program for one in self.all_instructions if isinstance(one, Run))
        return tuple(dict.fromkeys(program for program in runs if program is not None))

    @property
    def checks_nans(self) -> bool:
        """Whether the plan checks the results of its programs for NaN itself, instead of JAX."""
        return any(
            isinstance(one, Call) and one.function == NAN_CHECK for one in self.all_instructions
        )

    @property
    def constants(self) -> tuple[str, ...]:
        """Digests of the constants that programs and calls take, without duplicates."""
        users: list[Program | Call] = [x for x in self.all_instructions if isinstance(x, Call)]
        return tuple(dict.fromkeys(d for x in (*self.programs, *users) for d in x.constants))

    def text(self, signatures: Mapping[str, str] = _NO_SIGNATURES) -> str:
        """Returns the plan as readable text, one instruction per line.

        Args:
          signatures: argument and result types of programs by digest, which a plan does not know.
        """
        variables = (f"v{i}: {spec}" for i, spec in enumerate(self.variables))
        resources = (
            f"r{i}: {spec}{', not shared' if spec.owner else ''}"
            for i, spec in enumerate(self.resources)
        )
        typed = {
            str(program): signatures[program.digest]
            for program in self.programs
            if program.digest in signatures
        }
        order = ", in dataflow order" if self.after else ""
        lines = [f"plan for {self.device}, {self.n_slots} slots{order}"]
        lines += notation.section("variables", variables)
        lines += notation.section("resources", resources)
        lines += notation.section("programs", (f"{name}: {typed[name]}" for name in typed))
        for number, stage in enumerate(self.stages):
            after = ", ".join(map(str, self.after[number])) if number < len(self.after) else ""
            title = f"stage {number} after {after}" if after else f"stage {number}"
            lines += notation.section(title, map(_with_body, stage))
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def _with_body(one: Instruction) -> str:
    """Formats an instruction, a loop with its body."""
    if not isinstance(one, Loop):
        return str(one)
    body = one.body.text().replace("\n", "\n        ")
    return f"{one}\n        {body}"


def stride_of(plans: Iterable[Plan]) -> int:
    """Returns the number of edges of a step, as the bodies of its loops have them; 0 without loops.

    It is the least stride of its loops.
    """
    every = (one for plan in plans for one in plan.all_instructions)
    return min((one.stride for one in every if isinstance(one, Loop)), default=0)


def feed_indices(plans: Iterable[Plan]) -> tuple[int, ...]:
    """Returns the indices of the values that plans are fed, ascending, as they are sent."""
    return _indices(plans, Feed)


def fetch_indices(plans: Iterable[Plan]) -> tuple[int, ...]:
    """Returns the indices of the values that plans return, ascending, as they are sent."""
    return _indices(plans, Fetch)


def _indices(plans: Iterable[Plan], kind: type[Feed] | type[Fetch]) -> tuple[int, ...]:
    indices = {one.index for plan in plans for one in plan.instructions if isinstance(one, kind)}
    return tuple(sorted(indices))
