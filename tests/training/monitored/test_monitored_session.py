"""Monitored sessions: the order of hooks, recovery, and how they end."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import jflow as tf
from tests.clusters import Backend
from tests.training.monitored.helpers import (
    FailsOnce,
    Recorder,
    counting_model,
    monitored,
    singular,
)

LOST = [tf.errors.AbortedError("lost"), tf.errors.UnavailableError("gone")]
KINDS = [monitored, singular]


def test_hooks_are_called_in_order_around_creation_each_step_and_the_end(
    backend: Backend,
) -> None:
    model = counting_model(backend)
    calls: list[str] = []
    with monitored(backend, Recorder(calls, "a "), Recorder(calls, "b ")) as session:
        session.run(model.train)
        assert session.run(model.step) == 1
    step = ["a before_run", "b before_run", "a after_run", "b after_run"]
    created = ["a begin", "b begin", "a after_create_session", "b after_create_session"]
    assert calls == [*created, *step, *step, "a end", "b end"]


class Adds(tf.train.SessionRunHook):
    """Adds to each step, and notes the contexts and values that it is given."""

    def __init__(self, args: tf.train.SessionRunArgs | None) -> None:
        self.args = args
        self.contexts: list[tf.train.SessionRunContext] = []
        self.values: list[tf.train.SessionRunValues] = []

    def before_run(self, run_context: tf.train.SessionRunContext) -> Any:
        self.contexts.append(run_context)
        return self.args

    def after_run(self, run_context: Any, run_values: tf.train.SessionRunValues) -> None:
        assert run_context is self.contexts[-1]
        self.values.append(run_values)


def test_a_hook_adds_fetches_feeds_and_options_and_gets_its_own_results(backend: Backend) -> None:
    model = counting_model(backend)
    x, y = tf.placeholder(tf.float32, ()), tf.placeholder(tf.float32, ())
    total, doubled = x + y, y * 2
    traced = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, timeout_in_ms=600_000)
    adds = Adds(tf.train.SessionRunArgs({"d": [doubled, model.step]}, {y: 2.0}, traced))
    idle, metadata = Adds(None), tf.RunMetadata()
    with monitored(backend, adds, idle) as session:
        own = tf.RunOptions(timeout_in_ms=500_000, output_partition_graphs=True)
        assert session.run({"sum": total}, {x: 1.0}, own, metadata) == {"sum": 3.0}
    (context,), (values,), (others,) = adds.contexts, adds.values, idle.values
    assert context.original_args.fetches == {"sum": total}
    assert context.original_args.feed_dict == {x: 1.0}
    assert isinstance(context.session, tf.Session)
    assert values.results == {"d": [4.0, 0]}
    assert others.results is None
    assert values.options == others.options
    assert values.options == tf.RunOptions(600_000, tf.RunOptions.FULL_TRACE, True)
    assert values.run_metadata is others.run_metadata is metadata
    assert metadata.partition_graphs
    assert metadata.trace.spans


def test_a_tensor_that_is_fed_twice_is_refused(backend: Backend) -> None:
    counting_model(backend)
    x = tf.placeholder(tf.float32, (), name="x")
    fed = tf.train.FeedFnHook(lambda: {x: 1.0})
    with monitored(backend, fed) as session:
        assert session.run(x) == 1.0
        with pytest.raises(RuntimeError, match=r"fed by a SessionRunHook and user: .*'x:0'"):
            session.run(x, {"x:0": 2.0})
    with (
        monitored(backend, fed, tf.train.FeedFnHook(lambda: {"x:0": 1.0})) as session,
        pytest.raises(RuntimeError, match=r"fed by two hooks: .*'x:0'"),
    ):
        session.run(x)


# Recovery


@pytest.mark.parametrize(
    ("method", "error"),
    [("before_run", LOST[0]), ("after_run", LOST[1]), ("after_create_session", LOST[1])],
)
def test_after_the_loss_of_a_task_a_new_session_runs_the_same_step_again(
    backend: Backend, method: str, error: Exception
) -> None:
    model = counting_model(backend)
    calls: list[str] = []
    with monitored(backend, FailsOnce(calls, method, error)) as session:
        assert session.run(model.step, {}) == 0
    failed = ["after_create_session", "before_run", "after_run"]
    failed = failed[: failed.index(method) + 1]
    again = ["after_create_session", "before_run", "after_run"]
    assert calls == ["begin", *failed, *again, "end"]


def test_the_creation_of_the_session_is_tried_again(backend: Backend) -> None:
    model = counting_model(backend)
    failures = [*LOST, *LOST]

    class Creator(tf.train.ChiefSessionCreator):
        def create_session(self) -> tf.Session:
            if failures:
                raise failures.pop()
            return super().create_session()

    calls: list[str] = []
    creator = Creator(master=backend.target)
    with tf.train.MonitoredSession(creator, [Recorder(calls)]) as session:
        assert session.run(model.step) == 0
    assert calls == ["begin", "after_create_session", "before_run", "after_run", "end"]


@pytest.mark.parametrize("method", ["before_run", "after_create_session"])
def test_other_errors_are_raised_and_end_is_not_called(backend: Backend, method: str) -> None:
    model = counting_model(backend)
    calls: list[str] = []
    hook = FailsOnce(calls, method, tf.errors.InternalError("a bug"))
    with (
        pytest.raises(tf.errors.InternalError, match="a bug"),
        monitored(backend, hook) as session,
    ):
        session.run(model.step)
    assert calls[-1] == method
    assert not tf.get_default_graph().finalized


def test_a_singular_session_does_not_recover(backend: Backend) -> None:
    model = counting_model(backend)
    calls: list[str] = []
    error = LOST[0]
    opened = singular(backend, FailsOnce(calls, "after_run", error))
    assert opened.raw_session().run(model.step) == 0
    with pytest.raises(type(error)), opened as session:
        session.run(model.step)
    assert calls == ["begin", "after_create_session", "before_run", "after_run"]


def test_a_session_that_is_closed_has_no_raw_session(backend: Backend) -> None:
    model = counting_model(backend)
    with singular(backend) as session:
        assert isinstance(session.raw_session(), tf.Session)
        session.run(model.train)
    assert session.raw_session() is None


def test_a_monitored_session_has_started_its_queue_runners_itself(backend: Backend) -> None:
    counting_model(backend)
    queue = tf.FIFOQueue(2, tf.float32, ())
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1.0)]))
    for kind in KINDS:
        with kind(backend) as session:
            assert tf.train.start_queue_runners(sess=session) == []
            assert tf.train.start_queue_runners(session, tf.train.Coordinator()) == []


def test_a_task_that_a_thread_of_the_session_has_lost_is_recovered_from(backend: Backend) -> None:
    model = counting_model(backend)
    seen: list[tf.train.Coordinator] = []

    class Loses(tf.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: tf.train.Coordinator) -> None:
            seen.append(coord)

        def before_run(self, run_context: Any) -> None:
            if len(seen) == 1:
                seen[0].request_stop(tf.errors.UnavailableError("lost by a thread"))
                raise ValueError("what the step says of it")

    with monitored(backend, Loses()) as session:
        assert session.run(model.step) == 0
        assert len(seen) == 2
        seen[1].request_stop(tf.errors.AbortedError("lost while nothing ran"))
        assert not session.should_stop()
        assert len(seen) == 3
        assert session.run(model.step) == 0


# How it ends


@pytest.mark.parametrize(
    ("kind", "end"),
    [(monitored, tf.errors.OutOfRangeError("no more data")), (singular, StopIteration())],
)
def test_the_end_of_the_data_ends_the_block_quietly_with_end_hooks(
    backend: Backend, kind: Any, end: Exception
) -> None:
    model = counting_model(backend)
    calls: list[str] = []
    with kind(backend, Recorder(calls)) as session:
        session.run(model.train)
        raise end
    assert calls[-1] == "end"
    assert session.should_stop()


def test_another_error_is_raised_without_end_hooks(backend: Backend) -> None:
    counting_model(backend)
    calls: list[str] = []
    with pytest.raises(KeyError, match="of the user"), monitored(backend, Recorder(calls)):
        raise KeyError("of the user")
    assert calls == ["begin", "after_create_session"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_ends_the_loop_and_a_closed_session_refuses_to_run(
    backend: Backend, kind: Any
) -> None:
    model = counting_model(backend)
    session = kind(backend, tf.train.StopAtStepHook(num_steps=2))
    n_runs = 0
    while not session.should_stop():
        session.run(model.train)
        n_runs += 1
    assert n_runs == 2
    with pytest.raises(RuntimeError, match="after a stop was requested"):
        session.run(model.train)
    session.close()
    with pytest.raises(RuntimeError, match="is closed"):
        session.run(model.train)
    with pytest.raises(RuntimeError, match="is closed"):
        session.close()
    assert "closed" in repr(session)


def test_the_graph_is_final_while_the_session_is_open(backend: Backend) -> None:
    counting_model(backend)
    with monitored(backend) as session:
        assert session.graph is tf.get_default_graph()
        with pytest.raises(RuntimeError, match="finalized"):
            tf.constant(1.0)
    tf.constant(1.0)


def test_a_graph_that_was_final_stays_so() -> None:
    v = tf.Variable(1.0)
    tf.train.create_global_step()
    scaffold = tf.train.Scaffold().finalize()
    tf.get_default_graph().finalize()
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold)) as session:
        assert session.run(v) == 1.0
    with pytest.raises(RuntimeError, match="finalized"):
        tf.constant(1.0)


def test_queue_runners_are_started_and_stopped_and_the_end_of_their_data_is_the_end(
    backend: Backend,
) -> None:
    tf.train.create_global_step()
    numbers = tf.train.range_input_producer(3, num_epochs=1, shuffle=False)
    number = numbers.dequeue()
    got = []
    with monitored(backend) as session:
        while not session.should_stop():
            got.append(int(session.run(number)))
    assert got == [0, 1, 2]
    assert not [t for t in threading.enumerate() if t.name.startswith("QueueRunnerThread")]


def test_an_error_of_a_thread_stops_the_loop_and_is_raised_at_the_end(backend: Backend) -> None:
    counting_model(backend)
    coords: list[tf.train.Coordinator] = []

    class Keeps(tf.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: tf.train.Coordinator) -> None:
            coords.append(coord)

    opened = monitored(backend, Keeps())
    coords[0].request_stop(ValueError("of a thread"))
    with pytest.raises(ValueError, match="of a thread"), opened as session:
        assert session.should_stop()


# Step functions


def test_a_step_function_runs_steps_with_and_without_hooks(backend: Backend) -> None:
    model = counting_model(backend)
    calls: list[str] = []

    def step_fn(step_context: Any) -> Any:
        step_context.session.run(model.train)
        return step_context.run_with_hooks(model.step)

    with singular(backend, Recorder(calls)) as session:
        assert session.run_step_fn(step_fn) == 1
        del calls[:2]
        assert calls == ["before_run", "after_run"]
        session.run_step_fn(lambda step_context: step_context.request_stop())
        raise AssertionError("the block goes on after the stop")
    assert calls == ["before_run", "after_run", "end"]
    assert session.should_stop()


def test_a_step_function_has_one_argument(backend: Backend) -> None:
    counting_model(backend)
    with (
        monitored(backend) as session,
        pytest.raises(ValueError, match=r"the argument step_context, got \['x', 'y'\]"),
    ):
        session.run_step_fn(lambda x, y: None)


def test_a_step_function_is_called_again_after_the_loss_of_a_task(backend: Backend) -> None:
    model = counting_model(backend)
    errors, sessions = list(LOST), []

    class Loop:
        def step(self, step_context: Any) -> Any:
            sessions.append(step_context.session)
            if errors:
                raise errors.pop()
            return step_context.run_with_hooks(model.step)

    with monitored(backend) as session:
        assert session.run_step_fn(Loop().step) == 0
    assert len(set(map(id, sessions))) == 3
