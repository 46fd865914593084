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


def _edges(plans: Iterable[Plan]) -> Iterator[EdgeName]:
    for plan in plans:
        for one in (plan, *(loop.body for loop in plan.loops)):
            names = _slot_names(one)
            for send in (each for each in one.instructions if isinstance(each, Send)):
                name = names.get(send.slot, "a constant")
                yield EdgeName(send.edge, name, str(plan.device), str(send.target))


def _instructions(plan: Plan, edge_names: Mapping[int, str]) -> Iterator[SampledInstruction]:
    """Yields the instructions of a plan, and then those of the bodies of its loops."""
    makers: dict[int, int] = {}  # the instruction that fills a slot
    loops: list[tuple[Loop, int, dict[int, int]]] = []
    n_all = len(plan.instructions)
    for number, one in enumerate(plan.instructions):
        yield _instruction(one, makers, edge_names, _slot_names(plan))
        makers |= dict.fromkeys(_filled(one), number)
        if isinstance(one, Loop):
            loops.append((one, n_all, dict(makers)))
            by_index = {fetch.index: n_all + i for i, fetch in _fetches(one.body)}
            finals = ((carry.final, by_index[carry.fetch]) for carry in one.carries)
            makers |= {slot: at for slot, at in finals if slot is not None}
            n_all += len(one.body.instructions)
    for loop, first, outer in loops:
        given = {feed: outer.get(slot) for slot, feed in loop.consts}
        given |= {carry.feed: outer.get(carry.init) for carry in loop.carries}
        inside: dict[int, int] = {}
        for number, one in enumerate(loop.body.instructions, first):
            if isinstance(one, Feed):
                source = given.get(one.index)
                inputs = () if source is None else (source,)
                yield SampledInstruction(f"fed value {one.index}", "pass", inputs)
            else:
                yield _instruction(one, inside, edge_names, _slot_names(loop.body))
            inside |= dict.fromkeys(_filled(one), number)


def _fetches(body: Plan) -> Iterator[tuple[int, Fetch]]:
    for number, one in enumerate(body.instructions):
        if isinstance(one, Fetch):
            yield number, one


def _filled(one: Instruction) -> tuple[int, ...]:
    """Returns the slots that an instruction fills."""
    match one:
        case Run():
            held = (*one.after, *one.before)
            return (*one.outputs, *(slot for _, slot in held))
        case Call() | Loop():
            return one.outputs
        case Recv() | Feed():
            return () if one.slot is None else (one.slot,)
        case _:
            return ()


def _instruction(
    one: Instruction,
    makers: Mapping[int, int],
    edge_names: Mapping[int, str],
    names: Mapping[int | None, str],
) -> SampledInstruction:
    kind = _KINDS[type(one)]
    match one:
        case Run():
            reads = (*one.reads, *(variable for variable, _ in one.before))
            name = one.op or "a program"
            return _sampled(name, kind, makers, one.inputs, reads=reads, writes=one.writes)
        case Call():
            name = one.op or one.function
            return _sampled(name, kind, makers, one.inputs, reads=one.variables)
        case Loop():
            return _sampled(one.op or "a loop", kind, makers, one.inputs)
        case Recv() | Send():
            inputs = (one.slot,) if isinstance(one, Send) and one.slot is not None else ()
            name = names.get(one.slot, "a constant")
            if isinstance(one, Recv):
                name = edge_names.get(one.edge, "a value")
            return _sampled(name, kind, makers, inputs, edge=one.edge)
        case _:
            what = "fed" if isinstance(one, Feed) else "fetched"
            inputs = () if isinstance(one, Feed) else (one.slot,)
            return _sampled(f"{what} value {one.index}", kind, makers, inputs)


_KINDS: Mapping[type[Instruction], str] = {
    Run: "run",
    Call: "call",
    Loop: "loop",
    Recv: "receive",
    Send: "send",
    Feed: "feed",
    Fetch: "fetch",
}


def _sampled(
    name: str,
    kind: str,
    makers: Mapping[int, int],
    slots: Iterable[int] = (),
    *,
    reads: Iterable[int] = (),
    writes: Iterable[int] = (),
    edge: int | None = None,
) -> SampledInstruction:
    inputs = dict.fromkeys(makers[slot] for slot in slots if slot in makers)
    return SampledInstruction(
        name, kind, tuple(inputs), tuple(dict.fromkeys(reads)), tuple(writes), edge
    )


def _slot_names(plan: Plan) -> Mapping[int | None, str]:
    """Returns the names of the values in slots; None is a signal. Others are constants."""
    names: dict[int | None, str] = {None: "a signal"}
    for one in plan.instructions:
        if isinstance(one, Feed | Recv) and one.slot is not None:
            names[one.slot] = "a fed value" if isinstance(one, Feed) else "a received value"
        if isinstance(one, Run | Call | Loop):
            names |= dict.fromkeys(one.outputs, one.op)
        if isinstance(one, Run):
            held = (*one.before, *one.after)
            names |= {slot: plan.variables[variable].key.name for variable, slot in held}
    return names
