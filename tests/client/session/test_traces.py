"""Traces of real steps, on every kind of backend."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.plan.trace import Trace
from jflow.plan.trace.record import Recorder
from jflow.task.execution.tracing import TracedState
from jflow.timeline import Timeline
from tests.clusters import BACKENDS, Backend
from tests.plan.trace.chrome import checked_events, processes_of, slices_of

FULL = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
GIVEN = np.ones((16, 16), np.float32)


def traced(session: Any, fetches: Any, feeds: Any = None) -> tuple[Any, tf.RunMetadata]:
    metadata = tf.RunMetadata()
    return session.run(fetches, feeds, FULL, metadata), metadata


def spans_of(trace: Trace, kind: str) -> dict[str, Any]:
    return {span.name: span for span in trace.spans if span.kind == kind}


def test_a_trace_has_the_programs_and_transfers_of_all_devices(backend: Backend) -> None:
    first, second = backend.devices[:2]
    x = tf.placeholder(tf.float32, (16, 16))
    with tf.device(first):
        y = tf.numpy.dot(x, x) + 1
    with tf.device(second):
        total = tf.numpy.sum(y)
    with tf.device(first):
        twice = total * 2
    with backend.session() as session:
        for _ in range(2):  # the first run of a program goes another way than the second
            got, metadata = traced(session, twice, {x: GIVEN})
        assert got == 2 * np.sum(GIVEN @ GIVEN + 1)
        devices = {op.name: str(d) for op, d in session.placement(twice, [x]).items()}
    trace = metadata.trace
    programs = spans_of(trace, "program")
    placed = {
        name: span.device
        for span in programs.values()
        for name in str(span.details["operations"]).split(", ")
    }
    assert placed == devices
    there, back = trace.transfers
    assert (there.name, there.n_bytes) == (y.name, GIVEN.nbytes)
    assert (there.source, there.target) == (devices[y.op.name], devices[total.op.name])
    assert (back.name, back.n_bytes) == (total.name, 4)
    of_y, of_total, of_twice = (
        next(span for span in programs.values() if op.name in str(span.details["operations"]))
        for op in (y.op, total.op, twice.op)
    )
    slack = sum(v for k, v in trace.details.items() if "clock error" in k)
    moments = [
        *(0.0, of_y.start, of_y.finish, there.start, there.finish, of_total.start),
        *(of_total.finish, back.start, back.finish, of_twice.start, of_twice.finish),
        trace.details["seconds of the call"],
    ]
    for one, other in pairwise(moments):
        assert one <= other + slack
    assert trace.seconds <= trace.details["seconds of the call"] + slack


def test_a_trace_opens_in_chrome(backend: Backend) -> None:
    first, second = backend.devices[:2]
    x = tf.placeholder(tf.float32, (16, 16))
    with tf.device(first):
        y = tf.numpy.dot(x, x)
    with tf.device(second):
        total = tf.numpy.sum(y)
    with backend.session() as session:
        _, metadata = traced(session, total, {x: GIVEN})
    events = checked_events(Timeline(metadata.step_stats).generate_chrome_trace_format())
    assert processes_of(events) == list(metadata.trace.devices)
    assert len(slices_of(events, "program")) == 2
    assert len([event for event in events if event["ph"] == "s"]) == 1
    labels = {
        stats.timeline_label.partition(" = ")[2].partition(" ")[0]
        for device in metadata.step_stats.dev_stats
        for stats in device.node_stats
    }
    assert {"send", "receive"} <= labels


def test_variables_and_their_updates_are_traced(backend: Backend) -> None:
    with tf.device(backend.devices[1]):
        v = tf.Variable(np.zeros(4, np.float32), name="v")
        update = v.assign_add(np.ones(4, np.float32))
    with tf.device(backend.devices[0]):
        after = tf.numpy.sum(update)
    with backend.session() as session:
        session.run(v.initializer)
        got = [traced(session, after) for _ in range(3)]
        assert [value for value, _ in got] == [4.0, 8.0, 12.0]
        np.testing.assert_array_equal(session.run(v), [3, 3, 3, 3])
    assert update.op.name in spans_of(got[-1][1].trace, "program")


def test_an_update_counts_the_updates_that_it_missed(backend: Backend) -> None:
    with tf.device(backend.devices[1]):
        v = tf.Variable(1.0, name="v")
        other = v.assign_add(1.0)
        has_read, may_go = (
            tf.FIFOQueue(4, [tf.float32], [()], shared_name=name) for name in ("read", "go")
        )
        slope = v.read_value() * 0.5
        with tf.control_dependencies([has_read.enqueue(slope)]):
            go = may_go.dequeue()
        update = v.assign_sub(slope + go)
        seen, release = has_read.dequeue(), may_go.enqueue(0.5)
    with backend.session() as session, ThreadPoolExecutor(1) as threads:
        session.run(v.initializer)
        assert traced(session, other.op)[1].trace.updates == (), "it had read nothing before"
        for n_others in (0, 3):
            running = threads.submit(traced, session, update.op)
            session.run(seen)
            for _ in range(n_others):
                session.run(other.op)
            session.run(release)
            (found,) = running.result()[1].trace.updates
            assert (found.variable, found.n_missed) == ("v", n_others)


def test_a_wait_for_a_queue_is_a_span_until_an_element_comes(backend: Backend) -> None:
    with tf.device(backend.devices[1]):
        queue = tf.FIFOQueue(4, [tf.float32], [()], shared_name="waited_for")
        element = queue.dequeue()
        enqueue = queue.enqueue(5.0)
        size = queue.size()
    with backend.session() as session:
        assert session.run(size) == 0
        found: list[Any] = []
        taker = threading.Thread(target=lambda: found.append(traced(session, element)))
        taker.start()
        # The element is there at once or after a wait; either way the call is in the trace.
        session.run(enqueue)
        taker.join()
        (value, metadata) = found[0]
        assert value == 5.0
        calls = spans_of(metadata.trace, "call")
        assert element.op.name in calls
        assert calls[element.op.name].details["calls"] == "queue.dequeue"


def test_a_traced_step_that_waits_too_long_ends_like_another_one(backend: Backend) -> None:
    queue = tf.FIFOQueue(4, [tf.float32], [()], shared_name="empty")
    element = queue.dequeue()
    options = tf.RunOptions(timeout_in_ms=100, trace_level=tf.RunOptions.FULL_TRACE)
    with backend.session() as session:
        session.run(queue.size())
        metadata = tf.RunMetadata()
        with pytest.raises(tf.errors.DeadlineExceededError) as traced_error:
            session.run(element, None, options, metadata)
        with pytest.raises(tf.errors.DeadlineExceededError) as error:
            session.run(element, options=tf.RunOptions(timeout_in_ms=100))
        assert traced_error.value.message == error.value.message
        assert traced_error.value.op == error.value.op
        assert not metadata.trace.spans
        session.run(queue.enqueue(1.0))
        assert traced(session, element)[0] == 1.0


def test_without_options_nothing_is_recorded(backend: Backend) -> None:
    x = tf.constant(1.0) + 1
    metadata = tf.RunMetadata()
    with backend.session() as session:
        assert session.run(x, run_metadata=metadata) == 2.0
        assert session.run(x, options=tf.RunOptions(), run_metadata=metadata) == 2.0
        assert session.run(x, options=FULL) == 2.0
    assert metadata.step_stats.dev_stats == ()
    assert metadata.partition_graphs == ()


def test_each_step_that_succeeds_replaces_all_that_was_recorded(backend: Backend) -> None:
    x = tf.placeholder(tf.float32, ())
    y = x + 1
    everything = tf.RunOptions(trace_level=3, output_partition_graphs=True)
    metadata = tf.RunMetadata()
    with backend.session() as session:
        session.run(y, {x: 1.0}, everything, metadata)
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(y, None, None, metadata)
        assert len(metadata.partition_graphs) == 1
        assert metadata.trace.spans
        session.run(y, {x: 1.0}, None, metadata)
    assert metadata.partition_graphs == ()
    assert metadata.trace.spans == ()


def test_a_step_that_is_not_traced_notes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it is not traced")

    monkeypatch.setattr(Recorder, "__init__", refuse)
    monkeypatch.setattr(TracedState, "__init__", refuse)
    x = tf.constant(1.0) + 1
    with BACKENDS["in_process"]() as servers, servers.session() as session, tf.Session() as local:
        for each in (session, local):
            assert each.run(x) == 2.0
            with pytest.raises(Exception, match="it is not traced"):
                traced(each, x)


def test_partition_graphs_are_the_plans_of_each_task(backend: Backend) -> None:
    with tf.device(backend.devices[0]):
        x = tf.constant(1.0) + 1
    with tf.device(backend.devices[1]):
        y = x * 3
    metadata = tf.RunMetadata()
    with backend.session() as session:
        options = tf.RunOptions(output_partition_graphs=True)
        assert session.run(y, options=options, run_metadata=metadata) == 6.0
        tasks = {str(device.task) for device in session.placement(y).values()}
    assert {*metadata.partition_plans} == tasks
    text = "\n".join(metadata.partition_graphs)
    assert text.count("plan for") == 2
    assert "as edge 0" in text
    assert not metadata.trace.spans


def test_a_callable_takes_options_if_it_was_made_so(backend: Backend) -> None:
    x = tf.placeholder(tf.float32, ())
    y = x * 2
    with backend.session() as session:
        double = session.make_callable(y, [x], accept_options=True)
        metadata = tf.RunMetadata()
        assert double(3.0, options=FULL, run_metadata=metadata) == 6.0
        assert metadata.trace.spans
        with pytest.raises(TypeError, match="accept_options=True"):
            session.make_callable(y, [x])(3.0, options=FULL)


def test_a_block_traces_the_functions_and_sessions_of_its_thread(backend: Backend) -> None:
    @tf.function
    def double(x: Any) -> Any:
        return tf.numpy.sin(x) * 2

    graph_value = tf.constant(2.0) + 1
    with tf.connect(backend.target), backend.session() as session:
        with tf.trace_steps() as traces:
            np.testing.assert_allclose(double(1.0), 2 * np.sin(1.0), rtol=1e-6)
            np.testing.assert_allclose(double(2.0), 2 * np.sin(2.0), rtol=1e-6)
            assert session.run(graph_value) == 3.0
            other = threading.Thread(target=lambda: (double(3.0), session.run(graph_value)))
            other.start()
            other.join()
        double(4.0)
    assert len(traces) == 3
    for trace in traces[:2]:
        (span,) = [span for span in trace.spans if span.kind == "program"]
        assert span.details["operations"] == "sin, mul"
        checked_events(trace.to_chrome())


def test_a_block_traces_what_variables_and_queues_do_at_once(backend: Backend) -> None:
    with tf.connect(backend.target):
        v = tf.Variable(1.0, name="eager")
        queue = tf.FIFOQueue(4, [tf.float32], [()])
        with tf.trace_steps() as traces:
            v.assign_add(2.0)
            queue.enqueue(3.0)
            assert queue.dequeue() == 3.0
        assert v.numpy() == 3.0
    kinds = [{span.kind for span in trace.spans} - {"wait"} for trace in traces]
    assert kinds == [{"program"}, {"call"}, {"call"}]


def test_a_started_step_whose_result_was_taken_is_in_the_block(backend: Backend) -> None:
    with tf.connect(backend.target):
        queue = tf.FIFOQueue(4, [tf.float32], [()])
        for _ in range(20):
            with tf.trace_steps() as traces:
                asyncio.run(queue.put_async(1.0))
                assert asyncio.run(queue.get_async()) == 1.0
            assert len(traces) == 2


def test_functions_return_what_they_return_without_a_trace() -> None:
    def keep(x: Any, y: Any) -> Any:
        return {"same": x, "sum": y + 1, "weak": 2.0 * y}

    plain, watched = tf.function(keep), tf.function(keep)
    expected = plain(np.float32(1), 2)
    with tf.trace_steps() as traces:
        got = watched(np.float32(1), 2)
    assert len(traces) == 1
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert (got[name].dtype, got[name].weak_type) == (value.dtype, value.weak_type)
        assert got[name] == value


def test_python_functions_that_a_step_calls_are_traced(backend: Backend) -> None:
    def triple(x: Any) -> Any:
        return np.asarray(x) * 3

    @tf.function
    def call(x: Any) -> Any:
        return jax.pure_callback(triple, jax.ShapeDtypeStruct((), np.float32), x) + 1

    with tf.connect(backend.target), tf.trace_steps() as traces:
        assert call(np.float32(2)) == 7.0
    calls = spans_of(traces[0], "call")
    assert [span.details["calls"] for span in calls.values()] == ["callback"]


def test_an_unknown_trace_level_is_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="as trace_level, got 7"):
        tf.RunOptions(trace_level=7)


def test_a_trace_of_a_loop_has_its_parts_and_transfers_in_each_iteration(backend: Backend) -> None:
    first, second = backend.devices[:2]

    def body(total: Any, x: Any) -> Any:
        with tf.device(first):
            y = x * 2.0
        with tf.device(second):
            return total + y, None

    with tf.Graph().as_default() as graph:
        total = graph.apply(lambda xs: jax.lax.scan(body, 0.0, xs)[0], (np.arange(5, dtype="f"),))
        with backend.session() as session:
            session.run(total)
            got, metadata = traced(session, total)
    assert got == 20.0
    programs = [span for span in metadata.trace.spans if span.kind == "program"]
    in_body = [span for span in programs if "mul" in span.name or "add" in span.name]
    assert len(in_body) == 10
    assert len({span.device for span in in_body}) == 2
    transfers = [one for one in metadata.trace.transfers if "mul" in one.name]
    assert len(transfers) == 5
    assert all(one.finish >= one.start for one in transfers)
