"""Reports are checked as data and as documents: their figures, their sections, hostile names."""

from __future__ import annotations

import pytest

from jflow.plan.trace import Span, Trace, Transfer
from jflow.plan.trace.spans import CALL, PROGRAM, STEP, WAIT, Update
from jflow.view import report
from jflow.view.measurements import STEPS, ContainerMemory, Measurements, StepRun
from jflow.view.report import report_page
from tests.api.test_cards import Page

PS = "/job:ps/task:0/device:CPU:0"
WORKER = "/job:worker/task:0/device:CPU:0"


def run(start: float, seconds: float, n_missed: int = 0, title: str = "train") -> StepRun:
    """A run whose worker computes in its second half, while the parameter server waits."""
    half = seconds / 2
    trace = Trace(
        "measured",
        (
            Span("read", CALL, PS, 0.0, 0.1),
            Span("gradient:0", WAIT, PS, 0.1, seconds),
            Span("dot", PROGRAM, WORKER, half, seconds, {"operations": "dot", "made at": "m.py:3"}),
        ),
        (Transfer("read:0", PS, WORKER, 1024, 0.1, half),),
        {"clock error of /job:ps/task:0 in seconds": 1e-4},
        (Update("w", PS, n_missed),),
    )
    return StepRun(title, start, seconds, trace)


MEASURED = Measurements(
    10.0,
    [run(1.0, 2.0, 0), run(2.0, 4.0, 3), run(8.0, 1.0, 0), run(9.0, 0.5, 0, "evaluate")],
    n_steps=7,
    memory=[ContainerMemory("/job:ps/task:0", "", 2, 1, 4096)],
    explanations={"evaluate": "CancelledError: the session is closed"},
)


def test_all_runs_are_on_one_axis_with_a_span_for_each_step() -> None:
    trace = MEASURED.trace
    assert {(one.start, one.finish) for one in trace.spans if one.kind == STEP} == {
        *((1.0, 3.0), (2.0, 6.0), (8.0, 9.0), (9.0, 9.5))
    }
    programs = [(one.start, one.finish) for one in trace.spans if one.kind == PROGRAM]
    assert programs == [(2.0, 3.0), (4.0, 6.0), (8.5, 9.0), (9.25, 9.5)]
    assert [one.start for one in trace.transfers] == pytest.approx([1.1, 2.1, 8.1, 9.1])


def test_steps_have_their_median_their_slowest_run_and_their_bytes() -> None:
    train, evaluate = MEASURED.steps
    assert (train.title, train.n_runs, train.total) == ("train", 3, 7.0)
    assert (train.median, train.slowest, train.n_bytes) == (2.0, 4.0, 1024)
    assert (evaluate.title, evaluate.n_runs, evaluate.predicted) == ("evaluate", 1, None)
    median, slowest = MEASURED.extremes("train")
    assert (median.start, slowest.start) == (1.0, 2.0)


def test_a_device_is_busy_while_it_runs_anything_and_not_while_it_waits() -> None:
    overlapping = Measurements(10.0, [run(1.0, 4.0), run(2.0, 4.0)])
    assert overlapping.busy == pytest.approx({PS: 0.2, WORKER: 3.0})
    assert STEPS not in MEASURED.busy


def test_operations_waits_and_edges_are_summed_by_name_and_device() -> None:
    dot, read = MEASURED.operations
    assert (dot.name, dot.line, dot.n, dot.total, dot.longest) == ("dot", "m.py:3", 4, 3.75, 2.0)
    assert (read.name, read.n) == ("read", 4)
    (wait,) = MEASURED.waiting
    assert (wait.name, wait.device, wait.n) == ("gradient:0", PS, 4)
    assert wait.total == pytest.approx(7.1)
    (edge,) = MEASURED.edges
    assert (edge.source, edge.target, edge.n, edge.n_bytes) == (PS, WORKER, 4, 4096)


def test_the_time_in_steps_counts_those_that_overlap_once() -> None:
    assert MEASURED.seconds_in_steps == pytest.approx(5.0 + 1.0 + 0.5)
    assert Page(report_page(MEASURED, "a report")).fact("in steps") == "6.5 s (65% of the time)"


def test_updates_are_counted_with_what_they_missed() -> None:
    (update,) = MEASURED.updates
    assert (update.variable, update.n, update.mean_missed, update.most_missed) == ("w", 4, 0.75, 3)


def test_a_report_has_all_sections_and_says_what_it_does_not_know() -> None:
    html = report_page(MEASURED, "a report")
    page = Page(html)
    names = [dict(attrs)["id"] for tag, attrs in page.elements if tag == "section"]
    assert (
        names
        == [
            *(
                "steps",
                "devices",
                "timeline",
                "runs",
                "operations",
                "transfers",
                "waits",
                "updates",
            ),
            *("memory", "placements"),
        ][: len(names)]
    )
    assert {*names} == {
        *("steps", "devices", "timeline", "runs", "operations", "transfers", "waits", "updates"),
        "memory",
    }, "nothing is known of placements"
    assert "the first 4 are shown" in page.text
    assert "the session is closed" in page.text
    assert page.fact("updates missed") == "0.75 on average, 3 at most by those of 'w'"
    links = [attrs["href"] for tag, attrs in page.elements if tag == "a"]
    assert links == [f"#{name}" for name in names]


def test_a_step_that_takes_little_of_the_time_is_not_drawn_alone() -> None:
    page = Page(report_page(MEASURED, "a report"))
    assert page.texts.count("evaluate") == 2, "in the table, and 0.5 of 7.5 s are enough"
    quick = Measurements(10.0, [run(1.0, 6.0), run(9.0, 0.25, title="evaluate")], n_steps=2)
    page = Page(report_page(quick, "a report"))
    assert page.texts.count("evaluate") == 1


def test_a_report_of_nothing_says_so() -> None:
    page = Page(report_page(Measurements(1.0), "a report"))
    assert "No step ran in the block." in page.text
    assert "section" not in {tag for tag, _ in page.elements}


def test_hostile_names_are_shown_as_they_are() -> None:
    name = "<script>alert(1)</script>\u202e" + "x" * 10_000
    trace = Trace(
        "measured",
        (Span(name, PROGRAM, PS, 0.0, 1.0, {"made at": name}), Span(name, WAIT, PS, 0.0, 1.0)),
        (Transfer(name, PS, WORKER, 1, 0.0, 1.0),),
        updates=(Update(name, PS, 1),),
    )
    memory = [ContainerMemory(name, name, 1, 1, 1)]
    measured = Measurements(1.0, [StepRun(name, 0.0, 1.0, trace)], 1, {name: name}, memory)
    html = report_page(measured, name)
    assert "<script" not in html
    assert "\u202e" not in html
    Page(html)


def test_long_tables_are_cut_and_say_how_many_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MAX_ROWS", 3)
    runs = [run(float(i), 0.5, title=f"step {i}") for i in range(10)]
    page = Page(report_page(Measurements(10.0, runs, 10), "a report"))
    assert "and 7 more" in page.text
