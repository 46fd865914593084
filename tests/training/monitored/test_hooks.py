"""The hooks that jflow has: when they act, and what they refuse."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.state.records import scalar_value
from jflow.testing import VirtualClock
from jflow.training.monitored import control_hooks, run_hook
from tests.clusters import Backend
from tests.training.monitored.helpers import counting_model, monitored

LOGGER = "jflow.training.monitored"


# When something is due


def test_a_timer_of_steps_is_due_at_first_and_then_after_so_many_steps() -> None:
    due = tf.train.SecondOrStepTimer(every_steps=3)
    assert due.last_triggered_step() is None
    assert due.should_trigger_for_step(7)
    assert due.update_last_triggered_step(7) == (None, None)
    assert [step for step in range(7, 13) if due.should_trigger_for_step(step)] == [10, 11, 12]
    assert due.update_last_triggered_step(12)[1] == 5
    assert due.last_triggered_step() == 12
    due.reset()
    assert due.should_trigger_for_step(12)


def test_a_timer_of_seconds_is_due_after_so_many_seconds_and_never_twice_for_a_step() -> None:
    clock = VirtualClock()
    with clock.installed(run_hook):
        due = tf.train.SecondOrStepTimer(every_secs=10)
        due.update_last_triggered_step(1)
        assert not due.should_trigger_for_step(2)
        clock.advance(10)
        assert due.should_trigger_for_step(2)
        assert not due.should_trigger_for_step(1)
        assert due.update_last_triggered_step(2) == (10.0, 1)


def test_a_timer_takes_exactly_one_interval() -> None:
    for options in ({}, {"every_secs": 1.0, "every_steps": 1}):
        with pytest.raises(ValueError, match="exactly one of every_secs and every_steps"):
            tf.train.SecondOrStepTimer(**options)


# Stopping


def _run(session: Any, fetch: Any) -> int:
    n_runs = 0
    while not session.should_stop():
        session.run(fetch)
        n_runs += 1
    return n_runs


def test_stop_at_step_counts_from_the_start_or_stops_at_a_step(backend: Backend) -> None:
    model = counting_model(backend)
    with monitored(backend, tf.train.StopAtStepHook(num_steps=3)) as session:
        assert _run(session, model.train) == 3
        assert session._opener.live.session.run(model.step) == 3
    start = tf.train.Scaffold(init_op=tf.group(model.weight.initializer, model.step.assign(5)))
    with monitored(backend, tf.train.StopAtStepHook(last_step=7), scaffold=start) as session:
        assert _run(session, model.train) == 2


def test_a_loop_that_starts_at_the_last_step_still_runs_once(backend: Backend) -> None:
    model = counting_model(backend)
    start = tf.train.Scaffold(init_op=tf.group(model.weight.initializer, model.step.assign(7)))
    with monitored(backend, tf.train.StopAtStepHook(last_step=7), scaffold=start) as session:
        assert _run(session, model.train) == 1


def test_a_step_that_does_not_count_does_not_stop_the_loop(backend: Backend) -> None:
    model = counting_model(backend)
    with monitored(backend, tf.train.StopAtStepHook(last_step=1)) as session:
        session.run(model.weight)
        assert not session.should_stop()
        session.run(model.train)
        assert session.should_stop()


def test_stop_at_step_takes_exactly_one_number() -> None:
    for options in ({}, {"num_steps": 1, "last_step": 1}):
        with pytest.raises(ValueError, match="exactly one of num_steps and last_step"):
            tf.train.StopAtStepHook(**options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.train.StopAtStepHook(num_steps=1),
        tf.train.StepCounterHook,
        lambda: tf.train.CheckpointSaverHook("unused", save_steps=1),
        lambda: tf.train.SummarySaverHook(1, scaffold=tf.train.Scaffold()),
        lambda: tf.train.GlobalStepWaiterHook(1),
        lambda: tf.train.ProfilerHook(save_steps=1),
    ],
)
def test_hooks_that_need_a_global_step_say_so(make: Any) -> None:
    hook = make()
    with pytest.raises(RuntimeError, match=f"{type(hook).__name__} requires a global step; call"):
        hook.begin()


def test_a_loss_that_is_nan_raises_or_stops(backend: Backend) -> None:
    counting_model(backend)
    loss = tf.placeholder(tf.float32, (), name="loss")
    with monitored(backend, tf.train.NanTensorHook(loss)) as session:
        session.run(loss, {loss: 1.0})
        with pytest.raises(tf.train.NanLossDuringTrainingError, match=r"'loss:0'.* is NaN"):
            session.run(loss, {loss: np.nan})
    hook = tf.train.NanTensorHook(loss, fail_on_nan_loss=False)
    with monitored(backend, hook) as session:
        session.run(loss, {loss: 1.0})
        assert not session.should_stop()
        session.run(loss, {loss: np.nan})
        assert session.should_stop()


# Starting, feeding, ending


def test_a_worker_waits_for_the_global_step_before_its_first_step(
    shared_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_hooks, "_POLL_S", 0.01)
    model = counting_model(shared_backend)
    restart = model.step.assign(0)
    ran = threading.Event()
    with (
        shared_backend.session() as other,
        monitored(shared_backend, tf.train.GlobalStepWaiterHook(3)) as session,
    ):
        worker = threading.Thread(target=lambda: (session.run(model.weight), ran.set()))
        worker.start()
        for _ in range(3):
            assert not ran.is_set()
            other.run(model.train)
        worker.join()
        assert ran.is_set()
        other.run(restart)
        session.run(model.weight)  # it waits before its first step only
    with monitored(shared_backend, tf.train.GlobalStepWaiterHook(0)) as session:
        session.run(model.weight)


def test_final_operations_are_fetched_at_the_end(backend: Backend) -> None:
    model = counting_model(backend)
    x = tf.placeholder(tf.float32, ())
    final = tf.train.FinalOpsHook({"step": model.step, "double": x * 2}, {x: 4.0})
    with monitored(backend, final, tf.train.FinalOpsHook(None)) as session:
        session.run(model.train)
        assert final.final_ops_values is None
    assert final.final_ops_values == {"step": 1, "double": 8.0}


def test_a_function_feeds_each_step(backend: Backend) -> None:
    counting_model(backend)
    x = tf.placeholder(tf.float32, ())
    values = iter([1.0, 2.0])
    with monitored(backend, tf.train.FeedFnHook(lambda: {x: next(values)})) as session:
        assert [session.run(x) for _ in range(2)] == [1.0, 2.0]


# Reporting


def test_tensors_are_logged_periodically_and_at_the_end(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    model = counting_model(backend)
    periodic = tf.train.LoggingTensorHook({"now": model.weight}, every_n_iter=2)
    at_end = tf.train.LoggingTensorHook(["weight:0"], at_end=True, formatter=lambda v: f"end {v}")
    with caplog.at_level(logging.INFO, LOGGER), monitored(backend, periodic, at_end) as session:
        for _ in range(4):
            session.run(model.train)
    texts = [text for text in caplog.messages if text.startswith(("now", "end"))]
    assert len(texts) == 3
    assert texts[0].startswith("now = [")
    assert texts[1].endswith(" sec)")
    assert texts[2].startswith("end {'weight:0': array([4., 4., 4.]")


def test_what_cannot_be_logged_is_refused() -> None:
    with pytest.raises(ValueError, match="at_end, or exactly one of"):
        tf.train.LoggingTensorHook([])
    with pytest.raises(ValueError, match="exactly one of"):
        tf.train.LoggingTensorHook([], every_n_iter=1, every_n_secs=1)
    with pytest.raises(ValueError, match="positive every_n_iter, got 0"):
        tf.train.LoggingTensorHook([], every_n_iter=0)


class Written(tf.summary.FileWriter):
    """A writer that keeps what is added."""

    def __init__(self) -> None:
        self.summaries: list[tuple[bytes, int | None]] = []

    def add_summary(self, summary: bytes, global_step: int | None = None) -> None:
        self.summaries.append((summary, global_step))

    def flush(self) -> None:
        self.summaries.append((b"flushed", None))


class Adding:
    """A writer that has one method."""

    def __init__(self) -> None:
        self.summaries: list[tuple[bytes, int | None]] = []

    def add_summary(self, summary: bytes, global_step: int | None = None) -> None:
        self.summaries.append((summary, global_step))


def test_the_rate_of_steps_is_logged_and_written(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    model = counting_model(backend)
    clock, writer = VirtualClock(), Adding()
    counter = tf.train.StepCounterHook(every_n_steps=2, summary_writer=writer)
    with (
        caplog.at_level(logging.INFO, LOGGER),
        clock.installed(run_hook),
        monitored(backend, counter) as session,
    ):
        for _ in range(5):
            session.run(model.train)
            clock.advance(0.5)
    rate = scalar_value("global_step/sec", 2.0)
    assert writer.summaries == [(rate, 3), (rate, 5)]
    assert caplog.messages.count("global_step/sec: 2") == 2


def test_steps_that_do_not_count_are_warned_of_once(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    model = counting_model(backend)
    with monitored(backend, tf.train.StepCounterHook(every_n_steps=1)) as session:
        for _ in range(6):
            session.run(model.weight)
    found = [text for text in caplog.messages if "the global step stays at 0" in text]
    assert len(found) == 1


def test_summaries_of_the_first_step_and_then_periodically_are_written(backend: Backend) -> None:
    model = counting_model(backend)
    loss = tf.summary.scalar("loss", model.weight.to_tensor()[0])
    writer, other = Written(), Written()
    hooks = [
        tf.train.SummarySaverHook(2, summary_writer=writer, summary_op=loss),
        tf.train.SummarySaverHook(
            100, summary_writer=other, scaffold=(scaffold := tf.train.Scaffold())
        ),
    ]
    with monitored(backend, *hooks, scaffold=scaffold) as session:
        for _ in range(5):
            session.run(model.train)
    assert [step for _, step in writer.summaries] == [1, 3, 5, None]
    assert [step for _, step in other.summaries] == [1, None]
    assert all(b"loss" in data for data, _ in writer.summaries[:-1])


def test_a_hook_of_summaries_has_one_source_and_one_interval() -> None:
    with pytest.raises(ValueError, match="exactly one of scaffold and summary_op"):
        tf.train.SummarySaverHook(1, output_dir="unused")
    with pytest.raises(ValueError, match="exactly one of every_secs and every_steps"):
        tf.train.SummarySaverHook(output_dir="unused", scaffold=tf.train.Scaffold())
    summary = tf.summary.scalar("x", 1.0)
    with pytest.raises(ValueError, match=r"requires output_dir= or summary_writer="):
        tf.train.SummarySaverHook(1, summary_op=summary)


def test_steps_are_profiled_periodically_but_not_the_first(
    backend: Backend, tmp_path: Path
) -> None:
    model = counting_model(backend)
    folder = tmp_path / "profiles"
    with monitored(backend, tf.train.ProfilerHook(2, output_dir=folder)) as session:
        for _ in range(5):
            session.run(model.train)
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 2
    assert "timeline-1.json" not in names
    assert json.loads((folder / names[0]).read_text())["traceEvents"]


def test_a_profile_has_no_memory() -> None:
    with pytest.raises(tf.errors.UnimplementedError, match="show_memory=False"):
        tf.train.ProfilerHook(1, show_memory=True)
