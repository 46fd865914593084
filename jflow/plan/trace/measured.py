"""`measured`: builds the trace of a real step from its task records and the names in its plans.

A transfer between tasks begins when its value is ready to leave and ends when the copy to the
target's device would have ended had it begun on arrival: the time for which the receiver was busy
with something else is not the transfer's. Inside of a task a value does not move before the
receiver copies it, so the copy is the transfer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jflow.base.text import natural
from jflow.plan.trace.record import TaskRecord
from jflow.plan.trace.spans import KINDS, PROGRAM, Detail, Span, Transfer, Update
from jflow.plan.trace.trace import Trace


class Label(NamedTuple):
    """The name of an instruction in traces, with its operations and target.

    Attributes:
      name: of the operation that it is called by.
      operations: of the graph, that it consists of.
      target: what it runs or calls: the digest of a program, the name of a function.
    """

    name: str
    operations: tuple[str, ...] = ()
    target: str = ""


class EdgeNames(NamedTuple):
    """The name of an edge between two plans, and the names of their devices."""

    name: str
    source: str
    target: str


@dataclass(frozen=True)
class StepNames:
    """Names of the instructions and edges of a step.

    Attributes:
      labels: for each device those of its instructions, in the order of its plan.
      edges: by number.
      lines: the user's lines that made the operations which instructions and edges are called by.
      variables: for each device the names of the variables of its plan.
      stride: what the numbers of edges grow by from one iteration of a loop to the next; 0 if the
        step has no loops over devices.
    """

    labels: Mapping[str, Sequence[Label]]
    edges: Mapping[int, EdgeNames]
    lines: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stride: int = 0

    def edge(self, number: int) -> EdgeNames | None:
        """Returns the names of an edge, which may be one of an iteration; None if unknown."""
        return self.edges.get(number % self.stride if self.stride else number)

    def line(self, name: str) -> str:
        """Returns the user's line that made an operation or tensor; "" if it is not known."""
        return self.lines.get(name, "") or self.lines.get(name.rpartition(":")[0], "")

    def op_text(self, op: str) -> str:
        """Formats an operation with the user's line that made it, for messages."""
        line = self.lines.get(op)
        return f"{op!r} (made at {line})" if line else repr(op)


NO_NAMES = StepNames({}, {})


def measured(records: Iterable[TaskRecord], names: StepNames, start: float, finish: float) -> Trace:
    """Merges the records of all tasks into the trace of a step.

    Args:
      records: what its tasks noted, by the clock of the client.
      names: what the plans are called.
      start, finish: of the call, by the same clock.
    """
    ordered = sorted(records, key=lambda record: natural(record.task))
    details: dict[str, Detail] = {"seconds of the call": finish - start}
    for record in ordered:
        details[f"clock error of {record.task} in seconds"] = record.error
        if record.n_dropped:
            details[f"spans and transfers of {record.task} not noted"] = record.n_dropped
    spans = [span for record in ordered for span in _spans(record, names, start)]
    spans.sort(key=lambda span: (natural(span.device), span.start))
    transfers = tuple(_transfers(ordered, names, start))
    updates = tuple(update for record in ordered for update in _updates(record, names))
    return Trace("measured", tuple(spans), transfers, details, updates)


def _spans(record: TaskRecord, names: StepNames, zero: float) -> Iterable[Span]:
    for row in record.rows("spans").tolist():
        device, kind = record.devices[int(row[0])], KINDS[int(row[2])]
        label = _label(names, device, int(row[1]))
        start, dispatched, finish = (max(time - zero, 0.0) for time in row[3:])
        details: dict[str, Detail] = {}
        if line := names.line(label.name):
            details["made at"] = line
        if label.target:
            details["runs" if kind == PROGRAM else "calls"] = label.target
        if kind == PROGRAM:
            details["operations"] = ", ".join(label.operations)
            details["seconds of dispatch"] = max(dispatched - start, 0.0)
        yield Span(label.name, kind, device, start, max(start, finish), details)


def _label(names: StepNames, device: str, number: int) -> Label:
    labels = names.labels.get(device, ())
    if 0 <= number < len(labels):
        return labels[number]
    return Label(f"instruction {number}")


def _transfers(records: Sequence[TaskRecord], names: StepNames, zero: float) -> Iterable[Transfer]:
    left = {
        int(edge): (record.task, time)
        for record in records
        for edge, time in record.rows("sent").tolist()
    }
    transfers = []
    for record in records:
        for number, n_bytes, arrived, copied, ended in record.rows("received").tolist():
            edge = names.edge(int(number))
            task, ready = left.get(int(number), ("", 0.0))
            if edge is None or not task:
                continue  # a span that was too many, or of another graph
            if task == record.task:
                start, finish = copied, ended
            else:
                start, finish = ready, max(arrived, ready) + (ended - copied)
            start_s = max(start - zero, 0.0)
            transfers.append(Transfer(*edge, int(n_bytes), start_s, max(finish - zero, start_s)))
    return sorted(transfers, key=lambda one: one.start)


def _updates(record: TaskRecord, names: StepNames) -> Iterable[Update]:
    """Yields the updates of variables that an earlier instruction of the step had read.

    What an instruction reads of a variable that it updates is no read in this sense: between the
    two no other step can come.
    """
    first_reads: dict[tuple[int, int], float] = {}
    own_updates: Counter[tuple[int, int]] = Counter()
    for device, _, variable, n_updates, is_written in record.rows("accesses").tolist():
        key = int(device), int(variable)
        if not is_written:
            first_reads.setdefault(key, n_updates)
            continue
        if key in first_reads:
            n_missed = n_updates - first_reads[key] - own_updates[key]
            where = record.devices[key[0]]
            yield Update(_variable(names, where, key[1]), where, max(int(n_missed), 0))
        own_updates[key] += key in first_reads


def _variable(names: StepNames, device: str, number: int) -> str:
    variables = names.variables.get(device, ())
    return variables[number] if 0 <= number < len(variables) else f"variable {number}"
