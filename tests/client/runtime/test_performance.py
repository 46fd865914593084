"""Performance reports of what really ran: sessions, functions, threads, variables, closures."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.client.runtime.performance import PerformanceReport
from tests.api.test_cards import Page
from tests.clusters import Backend


def titles(report: PerformanceReport) -> dict[str, int]:
    """How many runs there were of each step."""
    return {one.title: one.n_runs for one in report.measurements.steps}


def test_a_report_has_what_sessions_functions_and_variables_did(
    backend: Backend, tmp_path: Path
) -> None:
    x = tf.placeholder(tf.float32, (8, 8), name="x")
    with tf.device(backend.devices[1]):
        product = tf.numpy.dot(x, x)
    with tf.device(backend.devices[0]):
        total = tf.numpy.sum(product)

    @tf.function
    def double(x: Any) -> Any:
        return x * 2

    file = tmp_path / "r.html"
    with backend.session() as session, tf.connect(backend.target):
        with tf.performance_report(file) as report:
            v = tf.Variable(1.0, name="v")
            for _ in range(3):
                session.run(total, {x: np.ones((8, 8), np.float32)})
                double(np.float32(2.0))
            v.assign_add(1.0)
        double(np.float32(3.0))
    measured = report.measurements
    assert titles(report) == {total.op.name: 3, "double": 3, "initialize v": 1, "update v": 1}
    assert measured.n_steps == 8
    assert {one.n for one in measured.edges} == {3}
    assert {one.n_bytes for one in measured.edges} == {3 * 4 * 64}
    (memory,) = [one for one in measured.memory if one.n_variables]
    assert (memory.n_variables, memory.n_bytes) == (1, 4)
    predicted = {one.title: one.predicted for one in measured.steps}
    assert all(seconds is not None and seconds > 0 for seconds in predicted.values())
    html = file.read_text(encoding="utf-8")
    assert html == report.html()
    page = Page(html)
    assert __file__ in page.text, "the user's lines"
    assert "placements" in {dict(attrs).get("id") for _, attrs in page.elements}
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    assert repr(report).startswith("<jflow.PerformanceReport of 8 steps in ")
    assert Page(report._repr_html_()).fact("ran") == "8 steps"


def test_the_steps_of_all_threads_are_in_a_report_and_those_of_one_kind_together(
    backend: Backend,
) -> None:
    @tf.function
    def double(x: Any) -> Any:
        return x * 2

    def work() -> None:
        with tf.connect(backend.target):
            for _ in range(5):
                double(np.float32(1.0))

    with tf.connect(backend.target), tf.performance_report() as report:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        double(np.ones(3, np.float32))
    assert titles(report) == {"double": 15, "double (2)": 1}


def test_blocks_of_a_thread_and_of_the_process_both_have_a_step() -> None:
    x = tf.constant(1.0) + 1
    with tf.Session() as session, tf.performance_report() as outer:
        with tf.performance_report() as inner, tf.trace_steps() as traces:
            session.run(x)
        session.run(x)
    assert (outer.measurements.n_steps, inner.measurements.n_steps, len(traces)) == (2, 1, 1)


def test_after_the_first_steps_the_others_are_counted() -> None:
    x = tf.constant(1.0) + 1
    with tf.Session() as session, tf.performance_report(max_steps=2) as report:
        for _ in range(5):
            session.run(x)
    assert (len(report.measurements.runs), report.measurements.n_steps) == (2, 5)
    with pytest.raises(ValueError, match="max_steps must be at least 1, got 0"):
        tf.performance_report(max_steps=0).__enter__()


def test_a_report_is_written_when_the_block_fails(tmp_path: Path) -> None:
    file = tmp_path / "r.html"
    x = tf.constant(1.0) + 1

    def fail() -> None:
        with tf.Session() as session, tf.performance_report(file):
            session.run(x)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert "1 step" in file.read_text()


def test_a_report_whose_directory_is_not_there_is_refused_before_the_work(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match=r"no directory .*nowhere for the report r\.html"),
        tf.performance_report(tmp_path / "nowhere" / "r.html"),
    ):
        pytest.fail("the block has begun")


def test_a_step_that_fails_is_in_no_report() -> None:
    v = tf.Variable(1.0, name="v")
    with tf.Session() as session, tf.performance_report() as report:
        with pytest.raises(tf.errors.FailedPreconditionError):
            session.run(v)
        session.run(v.initializer)
        session.run(v)
    assert report.measurements.n_steps == 2


def test_what_a_closed_session_cannot_tell_is_said(backend: Backend) -> None:
    x = tf.constant(1.0) + 1
    with tf.performance_report() as report, backend.session() as session:
        session.run(x)
    (figures,) = report.measurements.steps
    explained = report.measurements.explanations[figures.title]
    if isinstance(explained, str):  # it was closed before anything was asked
        assert "closed" in explained
    assert "Steps" in report.html()


def test_a_step_that_cannot_be_explained_has_a_reason_in_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError

    monkeypatch.setattr("jflow.client.runtime.steps.explain_step", fail)
    x = tf.constant(1.0) + 1
    with tf.Session() as session, tf.performance_report() as report:
        session.run(x)
    assert [*report.measurements.explanations.values()] == ["KeyError: "]
    assert "No prediction for some steps: KeyError" in report.html()
    assert len(report.measurements.memory) <= 1
