"""`trace_of`: a simulated step in the form of a measured one."""

from __future__ import annotations

from collections.abc import Hashable

from jflow.compiler.schedule.problem import Problem
from jflow.compiler.schedule.simulate import Timeline
from jflow.plan.trace import Span, Trace, Transfer
from jflow.plan.trace.spans import OPERATION


def trace_of(problem: Problem, timeline: Timeline, title: str = "simulated") -> Trace:
    """The trace of a simulated step, a span for each operation.

    Args:
      problem: what was simulated.
      timeline: the result of `simulate` for it.
      title: what a viewer calls the trace.
    """
    devices = [str(device) for device in problem.devices]
    names = [_name(operation) for operation in problem.graph.operations]
    # By device, so that viewers show the devices in the order of the problem.
    order = sorted(range(len(names)), key=lambda i: (timeline.devices[i], timeline.start[i]))
    spans = tuple(
        Span(
            names[i],
            OPERATION,
            devices[timeline.devices[i]],
            timeline.start[i],
            timeline.finish[i],
        )
        for i in order
    )
    edges = problem.graph.edges
    transfers = tuple(
        Transfer(
            names[edges[sent.edge].producer],
            devices[sent.source],
            devices[sent.target],
            int(edges[sent.edge].n_bytes),
            sent.start,
            sent.finish,
        )
        for sent in timeline.transfers
    )
    return Trace(title, spans, transfers)


def _name(operation: Hashable) -> str:
    """The name of an operation; what it is called by where it has none."""
    name = getattr(operation, "name", None)
    return name if isinstance(name, str) else str(operation)
