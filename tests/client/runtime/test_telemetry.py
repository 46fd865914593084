"""Steps as spans of OpenTelemetry, read back from an exporter in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import jflow as tf
from tests.clusters import Backend


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(api, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def below(parent: Any, spans: Any) -> list[Any]:
    """The spans whose parent is that span."""
    return [one for one in spans if one.parent and one.parent.span_id == parent.context.span_id]


def test_a_step_is_a_span_with_its_programs_below_the_users_own(
    backend: Backend, exported: InMemorySpanExporter
) -> None:
    x = tf.placeholder(tf.float32, (4, 4))
    with tf.device(backend.devices[1]):
        product = tf.numpy.dot(x, x)
    with tf.device(backend.devices[0]):
        total = tf.numpy.sum(product)
    with backend.session() as session, tf.opentelemetry_spans():
        with api.get_tracer("user").start_as_current_span("epoch"):
            session.run(total, {x: np.ones((4, 4), np.float32)})
        session.run(total, {x: np.ones((4, 4), np.float32)})
    spans = exported.get_finished_spans()
    steps = [span for span in spans if span.name == total.op.name and span.parent is None]
    (epoch,) = [span for span in spans if span.name == "epoch"]
    inside = [
        span for span in spans if span.parent and span.parent.span_id == epoch.context.span_id
    ]
    assert len(steps) == len(inside) == 1
    (step,) = inside
    children = [
        span for span in spans if span.parent and span.parent.span_id == step.context.span_id
    ]
    kinds = {span.attributes["jflow.kind"] for span in children}
    assert "program" in kinds
    assert step.attributes["jflow.transferred_bytes"] == 64
    assert len(step.attributes["jflow.devices"]) == 2
    for child in children:
        assert step.start_time <= child.start_time <= child.end_time <= step.end_time
    assert epoch.start_time <= step.start_time <= step.end_time <= epoch.end_time


def test_without_the_package_the_block_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with (
        pytest.raises(tf.errors.UnimplementedError, match=r"pip install 'jflow\[telemetry\]'"),
        tf.opentelemetry_spans(),
    ):
        pytest.fail("the block has begun")
