"""Statistics of a step in the form of TensorFlow's `StepStats`, and `Timeline` to export them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from jflow.errors import UnimplementedError
from jflow.plan.trace.spans import Span, Transfer
from jflow.plan.trace.trace import Trace


@dataclass(frozen=True)
class NodeExecStats:
    """Start and end times of one execution of a program or call.

    Attributes:
      node_name: of the operation that its segment or call is named by.
      all_start_micros: when it started, in microseconds from the start of the step.
      op_start_rel_micros: from then to the end of its dispatch.
      op_end_rel_micros, all_end_rel_micros: from its start to its end.
      timeline_label: a line of text about it.
    """

    node_name: str
    all_start_micros: int
    op_start_rel_micros: int
    op_end_rel_micros: int
    all_end_rel_micros: int
    timeline_label: str


@dataclass(frozen=True)
class DeviceStepStats:
    """The executions and transfers on one device.

    Attributes:
      device: its name.
      node_stats: by start.
    """

    device: str
    node_stats: tuple[NodeExecStats, ...]


@dataclass(frozen=True)
class StepStats:
    """Times of one step on all devices of all tasks.

    Attributes:
      trace: the same as spans and transfers.
    """

    trace: Trace = field(default_factory=lambda: Trace("measured"))

    @cached_property
    def dev_stats(self) -> tuple[DeviceStepStats, ...]:
        """The devices that took part; empty if the step was not traced."""
        by_device: dict[str, list[NodeExecStats]] = {device: [] for device in self.trace.devices}
        for span in self.trace.spans:
            by_device[span.device].append(_of_span(span))
        for one in self.trace.transfers:
            by_device[one.source].append(_of_transfer(one, f"send to {one.target}"))
            by_device[one.target].append(_of_transfer(one, f"receive from {one.source}"))
        return tuple(
            DeviceStepStats(device, tuple(sorted(stats, key=lambda s: s.all_start_micros)))
            for device, stats in by_device.items()
        )


class HasTrace(Protocol):
    """Anything with a trace: `StepStats`, `RunMetadata`."""

    @property
    def trace(self) -> Trace:
        """The trace."""


class ChromeTimeline:
    """TensorFlow's `timeline.Timeline`: a step in Chrome's trace format.

    Args:
      step_stats: those of a step, or its `RunMetadata`.
    """

    def __init__(self, step_stats: HasTrace) -> None:
        self._trace = step_stats.trace

    def generate_chrome_trace_format(
        self, show_dataflow: bool = True, show_memory: bool = False
    ) -> str:
        """Returns the JSON that https://ui.perfetto.dev and chrome://tracing open.

        Args:
          show_dataflow: whether to show transfers, and arrows between their ends.
          show_memory: must be False: a trace has no memory in it.

        Raises:
          UnimplementedError: if `show_memory` is True.
        """
        if show_memory:
            raise UnimplementedError("a trace does not have the memory of a step; omit show_memory")
        trace = self._trace
        if not show_dataflow:
            trace = Trace(trace.title, trace.spans, (), trace.details)
        return trace.to_chrome()


def _of_span(span: Span) -> NodeExecStats:
    dispatched = span.details.get("seconds of dispatch", 0.0)
    inside = ", ".join(
        str(span.details[key]) for key in ("operations", "calls") if key in span.details
    )
    return NodeExecStats(
        span.name,
        _micros(span.start),
        _micros(dispatched if isinstance(dispatched, float) else 0.0),
        _micros(span.seconds),
        _micros(span.seconds),
        f"{span.name} = {span.kind}({inside})",
    )


def _of_transfer(one: Transfer, what: str) -> NodeExecStats:
    length = _micros(one.seconds)
    label = f"{one.name} = {what}, {one.n_bytes} bytes"
    return NodeExecStats(one.name, _micros(one.start), 0, length, length, label)


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
