"""`opentelemetry_spans`: the steps of this process as spans of OpenTelemetry."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from jflow.base.deadline.clock import now
from jflow.client.runtime.tracing import BLOCKS, TracedStep
from jflow.plan.trace import Span
from jflow.state.records import needed

_SCOPE = "jflow"


@contextmanager
def opentelemetry_spans() -> Iterator[None]:
    """A context manager in which every step of this process is a span of OpenTelemetry.

    A step is a child of the span that is current where it was run. Its own children are the
    programs, calls and waits on all devices, by this process's clock; bytes and devices are
    attributes. They go where the program has OpenTelemetry's SDK send them. Steps are
    traced, as in `performance_report`.

    Raises:
      UnimplementedError: if opentelemetry-api is not installed (`jflow[telemetry]`).
    """
    api = needed("opentelemetry.trace", "telemetry", "exporting spans")
    exporter = _Exporter(api, time.time() - now())
    with BLOCKS.of_process(exporter.add):
        yield


class _Exporter:
    """Makes spans of steps.

    Args:
      api: the module `opentelemetry.trace`.
      offset_s: from the clock of traces to the time since 1970, in seconds.
    """

    def __init__(self, api: Any, offset_s: float) -> None:
        self._api = api
        self._tracer = api.get_tracer(_SCOPE)
        self._offset_s = offset_s

    def add(self, step: TracedStep) -> None:
        """Makes the spans of a step that has ended."""
        trace = step.trace()
        parent = self._tracer.start_span(
            step.executable.title,
            start_time=self._ns(step.start),
            attributes={
                "jflow.devices": [*trace.devices],
                "jflow.transferred_bytes": sum(one.n_bytes for one in trace.transfers),
                "jflow.updates_missed": max((one.n_missed for one in trace.updates), default=0),
            },
        )
        context = self._api.set_span_in_context(parent)
        for span in trace.spans:
            child = self._tracer.start_span(
                span.name,
                context=context,
                start_time=self._ns(step.start + span.start),
                attributes=_attributes(span),
            )
            child.end(self._ns(step.start + span.finish))
        parent.end(self._ns(step.finish))

    def _ns(self, seconds: float) -> int:
        return int((seconds + self._offset_s) * 1e9)


def _attributes(span: Span) -> Mapping[str, Any]:
    details = {f"jflow.{name.replace(' ', '_')}": value for name, value in span.details.items()}
    return {"jflow.kind": span.kind, "jflow.device": span.device, **details}
