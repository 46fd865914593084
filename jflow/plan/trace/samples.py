"""`StepSamples`: steps of other programs that a master has traced for an observer.

A master has the plans of a step and not its graph, so what is traced is called by the operations
that the plans name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from jflow.base.packing import Finite, Limits, Record, Size
from jflow.plan.plan import Call, Feed, Plan, Recv, Run, Send
from jflow.plan.trace.measured import EdgeNames, Label, StepNames, measured
from jflow.plan.trace.record import Exchange, TaskRecord, offset_of
from jflow.plan.trace.trace import Trace

MAX_STEPS = 100
"""The most steps of one request."""


class PlanNames(Record, frozen=True):
    """The names of a plan: of its instructions, in order, and of its variables."""

    device: str
    instructions: tuple[str, ...]
    variables: tuple[str, ...]


class EdgeName(Record, frozen=True):
    """The number and name of an edge, and the names of its devices."""

    number: Size
    name: str
    source: str
    target: str


class SampledStep(Record, frozen=True):
    """A traced step: its names, and the records of its tasks by the clock of its master."""

    plans: tuple[PlanNames, ...]
    edges: tuple[EdgeName, ...]
    records: tuple[TaskRecord, ...]

    @property
    def begun(self) -> float:
        """When the first of its tasks began, in seconds."""
        return min((record.begun for record in self.records), default=0.0)

    @property
    def names(self) -> StepNames:
        """The names, as `measured` takes them."""
        return StepNames(
            {plan.device: tuple(map(Label, plan.instructions)) for plan in self.plans},
            {edge.number: EdgeNames(edge.name, edge.source, edge.target) for edge in self.edges},
            variables={plan.device: plan.variables for plan in self.plans},
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
            yield SampledStep(step.plans, step.edges, records)


def sampled(plans: Iterable[Plan], records: Iterable[TaskRecord]) -> SampledStep:
    """Returns a traced step of these plans."""
    plans = tuple(plans)
    names = tuple(
        PlanNames(
            str(plan.device),
            tuple(_instruction_name(plan, number) for number in range(len(plan.instructions))),
            tuple(variable.key.name for variable in plan.variables),
        )
        for plan in plans
    )
    edges = tuple(
        EdgeName(one.edge, _slot_name(plan, one.slot), str(plan.device), str(one.target))
        for plan in plans
        for one in plan.instructions
        if isinstance(one, Send)
    )
    return SampledStep(names, edges, tuple(records))


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


def _instruction_name(plan: Plan, number: int) -> str:
    one = plan.instructions[number]
    if isinstance(one, Run | Call):
        return one.op or (one.function if isinstance(one, Call) else "a program")
    if isinstance(one, Recv):
        return f"a value of {one.source}"
    return _slot_name(plan, one.slot) if isinstance(one, Send) else type(one).__name__.lower()


def _slot_name(plan: Plan, slot: int | None) -> str:
    """Returns the name of the operation that fills a slot."""
    if slot is None:
        return "a signal"
    for one in plan.instructions:
        if isinstance(one, Feed | Recv) and one.slot == slot:
            return "a fed value" if isinstance(one, Feed) else "a received value"
        if isinstance(one, Run):
            held = [(i, to) for i, to in (*one.before, *one.after) if to == slot]
            if held:
                return plan.variables[held[0][0]].key.name
        if isinstance(one, Run | Call) and slot in one.outputs:
            return one.op
    return "a constant"
