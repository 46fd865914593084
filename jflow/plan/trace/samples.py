"""`StepSamples`: steps of other programs that a master has traced for an observer.

A master has the plans of a step and not its graph, so what is traced is called by the operations
that the plans name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from jflow.base.packing import Finite, Limits, Record, Size
from jflow.plan.plan import (
    Call,
    Feed,
    Fetch,
    Instruction,
    Loop,
    Plan,
    Recv,
    Run,
    Send,
    stride_of,
)
from jflow.plan.trace.measured import EdgeNames, Label, StepNames, measured
from jflow.plan.trace.record import Exchange, TaskRecord, offset_of
from jflow.plan.trace.trace import Trace
from jflow.plan.uses import slots_filled, slots_read

MAX_STEPS = 100
"""The most steps of one request."""


class SampledInstruction(Record, frozen=True):
    """An instruction of a plan.

    Attributes:
      name: of the operation that it is called by.
      kind: what it does: "run", "call", "send", "receive", "feed", "fetch", "loop" or "pass",
        of a value that goes into the body of a loop.
      inputs: the numbers of the instructions of the plan whose results it uses.
      reads, writes: the numbers of variables of the plan.
      edge: of a send or receive; None of others.
    """

    name: str
    kind: str
    inputs: tuple[Size, ...] = ()
    reads: tuple[Size, ...] = ()
    writes: tuple[Size, ...] = ()
    edge: Size | None = None


class SampledPlan(Record, frozen=True):
    """A plan of a step: its device, its instructions in order, and the names of its variables."""

    device: str
    instructions: tuple[SampledInstruction, ...]
    variables: tuple[str, ...]


class EdgeName(Record, frozen=True):
    """The number and name of an edge, and the names of its devices."""

    number: Size
    name: str
    source: str
    target: str


class SampledStep(Record, frozen=True):
    """A traced step: its names, and the records of its tasks by the clock of its master."""

    plans: tuple[SampledPlan, ...]
    edges: tuple[EdgeName, ...]
    records: tuple[TaskRecord, ...]
    stride: Size = 0

    @property
    def begun(self) -> float:
        """When the first of its tasks began, in seconds."""
        return min((record.begun for record in self.records), default=0.0)

    @property
    def names(self) -> StepNames:
        """The names, as `measured` takes them."""
        return StepNames(
            {
                plan.device: tuple(Label(one.name) for one in plan.instructions)
                for plan in self.plans
            },
            {edge.number: EdgeNames(edge.name, edge.source, edge.target) for edge in self.edges},
            variables={plan.device: plan.variables for plan in self.plans},
            stride=self.stride,
        )


class StepSamples(Record, frozen=True):
    """Steps that a master has traced.

    Attributes:
      begun, ended: when the request came, and when this was made, by the master's clock in seconds.
      clock: identifies that clock; "" if that is not known.
    """

    what: ClassVar[str] = "the traced steps of a master"
    limits: ClassVar[Limits] = Limits(n_bytes=1 << 28, n_text=1 << 20, n_items=1 << 22)

    begun: Finite
    ended: Finite
    clock: str
    steps: tuple[SampledStep, ...]

    def shifted(self, sent: float, answered: float, clock: str) -> Iterator[SampledStep]:
        """Yields the steps with their times by the caller's clock.

        Args:
          sent, answered: when the request left and its reply came, by that clock in seconds.
          clock: identifies it.
        """
        is_one_clock = bool(clock) and clock == self.clock
        offset, error = offset_of(Exchange(sent, self.begun, self.ended, answered, is_one_clock))
        for step in self.steps:
            records = tuple(record.shifted(offset, error) for record in step.records)
            yield SampledStep(step.plans, step.edges, records, step.stride)


def sampled(plans: Iterable[Plan], records: Iterable[TaskRecord]) -> SampledStep:
    """Returns a traced step of these plans."""
    plans = tuple(plans)
    edges = tuple(_edges(plans))
    edge_names = {edge.number: edge.name for edge in edges}
    own = tuple(
        SampledPlan(
            str(plan.device),
            tuple(_instructions(plan, edge_names)),
            tuple(variable.key.name for variable in plan.variables),
        )
        for plan in plans
    )
    return SampledStep(own, edges, tuple(records), stride_of(plans))


def combined(steps: Sequence[SampledStep]) -> Trace:
    """Returns one trace of several steps, from the beginning of the first one on."""
    start = min((step.begun for step in steps), default=0.0)
    ends = (record.ended for step in steps for record in step.records)
    finish = max(ends, default=start)
    traces = [measured(step.records, step.names, start, finish) for step in steps]
    details = {name: detail for trace in traces for name, detail in trace.details.items()}
    return Trace(
        "measured",
        tuple(span for trace in traces for span in trace.spans),
        tuple(one for trace in traces for one in trace.transfers),
        details,
        tuple(update for trace in traces for update in trace.updates),
    )


def _edges(plans: Iterable[Plan], outer: Plan | None = None) -> Iterator[EdgeName]:
    for plan in plans:
        names = _slot_names(plan, outer or plan)
        for send in (one for one in plan.instructions if isinstance(one, Send)):
            name = names.get(send.slot, "a constant")
            yield EdgeName(send.edge, name, str(plan.device), str(send.target))
        yield from _edges((loop.body for loop in plan.loops), outer or plan)


def _instructions(
    plan: Plan,
    edge_names: Mapping[int, str],
    first: int = 0,
    given: Mapping[int, int] | None = None,
    outer: Plan | None = None,
) -> Iterator[SampledInstruction]:
    """Yields the instructions of a plan, and then those of the bodies of its loops.

    Args:
      plan: the plan.
      edge_names: the names of edges.
      first: the number of its first instruction.
      given: of a body: by fed value, the instruction outside of it that makes the value.
      outer: of a body: the plan whose variables it uses.
    """
    outer = outer or plan
    makers: dict[int, int] = {}  # the instruction that fills a slot
    names, bodies = _slot_names(plan, outer), []
    next_body = first + len(plan.instructions)
    for number, one in enumerate(plan.instructions, first):
        if given is not None and isinstance(one, Feed):
            inputs = (given[one.index],) if one.index in given else ()
            yield SampledInstruction(f"fed value {one.index}", "pass", inputs)
        else:
            yield _instruction(one, makers, edge_names, names)
        makers |= dict.fromkeys(slots_filled(one), number)
        if isinstance(one, Loop):
            outside = {feed: makers[slot] for slot, feed in one.consts if slot in makers}
            outside |= {x.feed: makers[x.init] for x in one.carries if x.init in makers}
            bodies.append((one.body, next_body, outside))
            inside = enumerate(one.body.instructions, next_body)
            by_index = {fetch.index: i for i, fetch in inside if isinstance(fetch, Fetch)}
            makers |= {x.final: by_index[x.fetch] for x in one.carries if x.final is not None}
            next_body += len(one.body.all_instructions)
    for body, number, outside in bodies:
        yield from _instructions(body, edge_names, number, outside, outer)


def _instruction(
    one: Instruction,
    makers: Mapping[int, int],
    edge_names: Mapping[int, str],
    names: Mapping[int | None, str],
) -> SampledInstruction:
    slots: Iterable[int] = slots_read(one)
    reads: Iterable[int] = ()
    writes: tuple[int, ...] = ()
    edge = None
    match one:
        case Run():
            name, slots = one.op or "a program", one.inputs
            reads, writes = (*one.reads, *(variable for variable, _ in one.before)), one.writes
        case Call():
            name, reads = one.op or one.function, one.variables
        case Loop():
            name = one.op or "a loop"
        case Recv():
            name, edge = edge_names.get(one.edge, "a value"), one.edge
        case Send():
            name, edge = names.get(one.slot, "a constant"), one.edge
        case Feed():
            name = f"fed value {one.index}"
        case Fetch():
            name = f"fetched value {one.index}"
    inputs = dict.fromkeys(makers[slot] for slot in slots if slot in makers)
    read = tuple(dict.fromkeys(reads))
    return SampledInstruction(name, _KINDS[type(one)], tuple(inputs), read, writes, edge)


_KINDS: Mapping[type[Instruction], str] = {
    Run: "run",
    Call: "call",
    Loop: "loop",
    Recv: "receive",
    Send: "send",
    Feed: "feed",
    Fetch: "fetch",
}


def _slot_names(plan: Plan, outer: Plan) -> Mapping[int | None, str]:
    """Returns the names of the values in slots; None is a signal. Others are constants.

    Args:
      plan: the plan, or the body of a loop.
      outer: the plan whose variables it uses.
    """
    names: dict[int | None, str] = {None: "a signal"}
    for one in plan.instructions:
        if isinstance(one, Feed | Recv) and one.slot is not None:
            names[one.slot] = "a fed value" if isinstance(one, Feed) else "a received value"
        if isinstance(one, Run | Call | Loop):
            names |= dict.fromkeys(one.outputs, one.op)
        if isinstance(one, Run):
            held = (*one.before, *one.after)
            names |= {slot: outer.variables[variable].key.name for variable, slot in held}
    return names
