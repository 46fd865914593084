"""A plan: what one device does in a step.

A plan is a short list of instructions around few, large XLA programs. Values live in numbered
slots, which are made for the step and dropped after it; variables live in containers and are named
by their number in the plan's table.

The instructions are in an order that cannot deadlock: every value that an instruction receives is
produced by instructions that some device can reach without it (see `jflow.partition`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from jflow.cluster import Device
from jflow.plan import text as notation

Slot = int

CALLBACK = "callback"
"""The function of a `Call` that the client of the step computes.

Its attributes are `number`, by which the client knows it, `results`, their dtypes and sizes (None
where one is not known), and `is_conditional`: whether the first input says if it is called. If it
is not, the results are zeros.
"""

NAN_CHECK = "check_nans"
"""The function that fails if what it is given is NaN; plans with it are for `jax_debug_nans`."""


@dataclass(frozen=True, order=True)
class VariableKey:
    """What identifies a variable on a device."""

    container: str
    name: str

    def __str__(self) -> str:
        return f"variable {self.name!r} (container {self.container!r})"


_NO_SIGNATURES: Mapping[str, str] = MappingProxyType({})

VARYING = 2**64 - 1
"""In the shape of a variable: a size that assignments may change."""


@dataclass(frozen=True)
class VariableSpec:
    """A variable as a plan uses it.

    Attributes:
      key: identifies it.
      dtype: name of its dtype, such as "float32".
      shape: its sizes, `VARYING` where they may change.
    """

    key: VariableKey
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.key}: {self.dtype} {notation.shape_of_sizes(self.shape, VARYING)}"


@dataclass(frozen=True)
class ResourceSpec:
    """A queue or another resource as a plan uses it.

    Attributes:
      kind: what it is, such as "queue"; it has a name among those of its kind.
      container, name: where it is.
      owner: the session that it belongs to; "" if it is shared by its name.
      definition: how to make it, as JSON.
    """

    kind: str
    container: str
    name: str
    owner: str
    definition: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} (container {self.container!r})"


@dataclass(frozen=True)
class Feed:
    """Takes the step's fed value number `index`."""

    index: int
    slot: Slot

    def __str__(self) -> str:
        return f"{notation.slot_name(self.slot)} = feed {self.index}"


@dataclass(frozen=True)
class Recv:
    """Takes what the device `source` sends under `edge`; `slot` is None for a bare signal."""

    edge: int
    source: Device
    slot: Slot | None

    def __str__(self) -> str:
        taken = "receive signal" if self.slot is None else f"%{self.slot} = receive"
        return f"{taken} from {self.source} as edge {self.edge}"


@dataclass(frozen=True)
class Program:
    """A compiled computation by name.

    Attributes:
      digest: names the code.
      constants: digests of arrays that the code takes as its last arguments; small ones are in
        the code itself.
      donated: numbers of the arguments whose memory the results may take.
    """

    digest: str
    constants: tuple[str, ...] = ()
    donated: tuple[int, ...] = ()

    def __str__(self) -> str:
        return notation.short_name(self.digest)


@dataclass(frozen=True)
class Run:
    """Runs a program and updates variables, in one critical section of these variables.

    The program takes the old values of `reads`, then `inputs`, then its constants; it gives the
    new values of `writes`, then `outputs`. A variable that it both reads and writes is updated in
    place.

    Attributes:
      program: what to run, or None if there is nothing to compute.
      reads, writes: numbers of variables.
      initializes: those of the written that keep their value if they have one.
      inputs, outputs: slots.
      before: (variable, slot) pairs to fill with values as they were before the update.
      after: (variable, slot) pairs to fill with values as they are after it.
      op: name of the operation in the user's graph that writes the first of `writes`, or else of
        another one of the program, for messages.
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
        ]
        results = [*notation.variable_names(self.writes), *notation.slot_names(self.outputs)]
        what = "run nothing" if program is None else f"run {program}"
        return notation.instruction_line(results, what, arguments, clauses, self.op)


@dataclass(frozen=True)
class Call:
    """Calls a function that computes with values in the memory of the task.

    Attributes:
      function: its name; the worker knows it.
      inputs, outputs: slots.
      constants: digests of arrays that the function takes as its last arguments.
      resources: numbers of the resources that it works on; it may have to wait for them.
      attributes: its named arguments, as a JSON object.
      op: name of the operation in the user's graph, for messages.
    """

    function: str
    inputs: tuple[Slot, ...] = ()
    outputs: tuple[Slot, ...] = ()
    constants: tuple[str, ...] = ()
    resources: tuple[int, ...] = ()
    attributes: str = "{}"
    op: str = ""

    def __str__(self) -> str:
        arguments = [
            *notation.slot_names(self.inputs),
            *notation.constant_names(self.constants),
        ]
        used = ", ".join(notation.resource_names(self.resources))
        attributes = notation.attributes_text(self.attributes)
        clauses = [*([f"on {used}"] if used else []), *([attributes] if attributes else [])]
        results = notation.slot_names(self.outputs)
        what = f"call {self.function}"
        return notation.instruction_line(results, what, arguments, clauses, self.op)


@dataclass(frozen=True)
class Send:
    """Sends a slot's value, or a bare signal if None, to `target` under `edge`."""

    edge: int
    target: Device
    slot: Slot | None

    def __str__(self) -> str:
        return f"send {notation.slot_name(self.slot)} to {self.target} as edge {self.edge}"


@dataclass(frozen=True)
class Fetch:
    """Gives a slot's value back as the step's fetched value number `index`."""

    slot: Slot
    index: int

    def __str__(self) -> str:
        return f"fetch {self.index} = {notation.slot_name(self.slot)}"


Instruction = Feed | Recv | Run | Call | Send | Fetch


@dataclass(frozen=True)
class Plan:
    """What one device does in a step.

    Feeds fill their slots before the first instruction, fetches read theirs after the last one. An
    instruction reads only slots that are filled before it: by a feed, by an earlier instruction of
    its own stage, or in a stage that is done before. Each slot is filled once. See
    `jflow.plan.verify`.

    Attributes:
      device: where.
      n_slots: how many slots it has.
      variables: the variables it uses; instructions refer to them by position.
      resources: the resources that it uses, likewise.
      stages: instructions by stage. Those of stage s need only what stages before s sent, on any
        device.
      after: for each stage the numbers of those that have to be done before it. Empty if they can
        be taken one after the other; else one may have to wait while others must go on.
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
    def artifacts(self) -> frozenset[str]:
        """Digests of everything that its programs and calls are made of."""
        return frozenset({program.digest for program in self.programs} | {*self.constants})

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs it runs, each once."""
        runs = (one.program for one in self.instructions if isinstance(one, Run))
        return tuple(dict.fromkeys(program for program in runs if program is not None))

    @property
    def checks_nans(self) -> bool:
        """Whether it looks for NaN in what its programs give, so that JAX need not."""
        return any(isinstance(one, Call) and one.function == NAN_CHECK for one in self.instructions)

    @property
    def constants(self) -> tuple[str, ...]:
        """Digests of the constants that its programs and calls take, each once."""
        users: list[Program | Call] = [one for one in self.instructions if isinstance(one, Call)]
        return tuple(dict.fromkeys(d for x in (*self.programs, *users) for d in x.constants))

    def text(self, signatures: Mapping[str, str] = _NO_SIGNATURES) -> str:
        """The plan as text for people and for golden tests: an instruction a line.

        Args:
          signatures: the types that programs take and give, by their digests; a plan itself does
            not know them.
        """
        variables = (f"v{i}: {spec}" for i, spec in enumerate(self.variables))
        resources = (f"r{i}: {spec}" for i, spec in enumerate(self.resources))
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
            lines += notation.section(title, map(str, stage))
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def feed_indices(plans: Iterable[Plan]) -> tuple[int, ...]:
    """Indices of the values that plans are fed, in the order in which they are handed over."""
    return _indices(plans, Feed)


def fetch_indices(plans: Iterable[Plan]) -> tuple[int, ...]:
    """Indices of the values that plans give back, in the order in which they are handed over."""
    return _indices(plans, Fetch)


def _indices(plans: Iterable[Plan], kind: type[Feed] | type[Fetch]) -> tuple[int, ...]:
    found = {one.index for plan in plans for one in plan.instructions if isinstance(one, kind)}
    return tuple(sorted(found))
