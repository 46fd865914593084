"""Resumed comparisons: what they keep of earlier results, what they run again, and the files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.errors import InvalidArgumentError
from jflow.lab.suite import Measuring, SuiteOptions, compare
from jflow.lab.suite.cases import GROUPS, SuiteCase
from jflow.lab.suite.contenders import contenders_of
from jflow.lab.suite.results import read
from jflow.lab.suite.scoring import result_of
from tests.lab import strategies_of_users
from tests.lab.test_suite import fake

pytestmark = pytest.mark.usefixtures("no_proofs")

MINE = "tests.lab.strategies_of_users:"
SHORT = SuiteOptions(("heft", "round_robin"), ("layered",), (2,), quick=True)


def test_a_resumed_run_runs_only_what_is_missing(tmp_path: Path, monkeypatch) -> None:
    compare(SHORT, tmp_path)
    calls = []
    place = STRATEGIES["heft"]
    monkeypatch.setattr(
        strategies_of_users, "alternate", lambda *parts: calls.append(0) or place(*parts)
    )
    first = compare(replace(SHORT, strategies=[MINE + "alternate"], resume=True), tmp_path)
    n = len(first.cases)
    assert len(calls) == n
    assert all({"heft", "round_robin"} <= each.scores.keys() for each in first.cases)
    again = compare(replace(SHORT, strategies=[MINE + "alternate"], resume=True), tmp_path)
    assert len(calls) == n
    assert len(again.cases) == n


def test_a_run_that_was_interrupted_goes_on_where_it_was(tmp_path: Path, monkeypatch) -> None:
    whole = compare(SHORT, tmp_path / "whole")
    seen = []

    def interrupted(case, *arguments, **options):
        seen.append(case)
        if len(seen) == 7:
            raise KeyboardInterrupt
        return result_of(case, *arguments, **options)

    monkeypatch.setattr("jflow.lab.suite.comparison.result_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare(SHORT, tmp_path)
    kept = {key for group in GROUPS if (f := read(tmp_path / f"{group}.json")) for key in f.cases}
    assert kept == {case.key for case in seen[:6]}
    seen.clear()
    built = []
    monkeypatch.setattr(
        SuiteCase, "actual", lambda self, problem: built.append(self) or problem, raising=True
    )
    monkeypatch.setattr("jflow.lab.suite.comparison.result_of", result_of)
    resumed = compare(replace(SHORT, resume=True), tmp_path)
    assert len(built) == len(whole.cases) - 6
    assert len(resumed.cases) == len(whole.cases)


def test_a_strategy_that_changed_is_run_again(tmp_path: Path, monkeypatch) -> None:
    module = tmp_path / "changing_strategy.py"
    text = "def place(graph, devices, costs, constraints):\n    return dict.fromkeys({})\n"
    module.write_text(text.format("graph.operations, devices[0]"))
    monkeypatch.syspath_prepend(str(tmp_path))
    options = replace(SHORT, strategies=["changing_strategy:place"])
    compare(options, tmp_path)
    mark = contenders_of(["changing_strategy:place"])[-1].fingerprint
    module.write_text(text.format("graph.operations, devices[1]"))
    assert contenders_of(["changing_strategy:place"])[-1].fingerprint != mark
    found = read(tmp_path / "small.json")
    assert found is not None
    assert found.origin.strategies["changing_strategy:place"] == mark


def test_results_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    comparison = compare(replace(SHORT, strategies=[MINE + "raising"]), tmp_path)
    found = read(tmp_path / "small.json")
    assert found is not None
    expected = [each for each in comparison.cases if each.group == "small"]
    for one, other in zip(found.cases.values(), expected, strict=True):
        assert one.scores.keys() == other.scores.keys()
        for name, score in one.scores.items():
            assert score.refused == other.scores[name].refused
            if score.makespan is not None:
                assert score.makespan == pytest.approx(other.scores[name].makespan, rel=1e-6)
        assert one.best == pytest.approx(other.best, rel=1e-6)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', '{"format": 99}', "{}"])
def test_a_broken_file_of_results_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "small.json").write_text(text)
    with pytest.raises(InvalidArgumentError, match=r"small\.json is not a file of results.*delete"):
        compare(replace(SHORT, resume=True), tmp_path)


def cases_in(folder: Path) -> dict[str, set[str]]:
    """The strategies that each case in a folder of results has scores of, by key."""
    files = [found for group in GROUPS if (found := read(folder / f"{group}.json"))]
    return {key: {*case.scores} for each in files for key, case in each.cases.items()}


TINY = SuiteOptions(("heft",), ("fft",), (2,), quick=True)


def test_a_resumed_run_keeps_workloads_strategies_and_devices_that_it_does_not_name(
    tmp_path: Path,
) -> None:
    compare(replace(TINY, workloads=("fft", "wavefront")), tmp_path)
    before = cases_in(tmp_path)
    options = replace(TINY, strategies=("round_robin",), devices=(3,), resume=True)
    second = compare(options, tmp_path)
    after = cases_in(tmp_path)
    assert before.keys() < after.keys()
    assert all({"single", "heft"} <= after[key] for key in before)
    assert len(second.cases) == len(after)
    assert {case.workload for case in second.cases} == {"fft", "wavefront"}
    assert {2, 3} <= {case.n_devices for case in second.cases}
    # The page is of all of them.
    page = (tmp_path / "README.md").read_text()
    assert f"{len(after)} simulated cases" in page
    assert "some strategies ran in fewer" in page
    # So does a run that simulates nothing.
    third = compare(replace(options, workloads=("mlp",), simulates=False), tmp_path)
    assert cases_in(tmp_path) == after
    assert len(third.cases) == len(after)


def test_an_interrupted_resumed_run_loses_nothing_that_was_there(
    tmp_path: Path, monkeypatch
) -> None:
    compare(TINY, tmp_path)
    before = cases_in(tmp_path)

    seen = []

    def interrupted(case, *arguments, **options):
        seen.append(case.key)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return result_of(case, *arguments, **options)

    monkeypatch.setattr("jflow.lab.suite.comparison.result_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare(replace(TINY, strategies=("round_robin",), resume=True), tmp_path)
    assert cases_in(tmp_path) == {**before, seen[0]: {"single", "heft", "round_robin"}}


def test_cases_of_another_seed_or_of_other_sources_do_not_stay(tmp_path: Path) -> None:
    compare(TINY, tmp_path)
    other = compare(replace(TINY, seed=1, resume=True), tmp_path)
    assert {case.parameters["seed"] for case in other.cases} == {1}
    path = tmp_path / "contention.json"
    document = json.loads(path.read_text())
    document["strategies"]["heft"] = "an earlier one"
    path.write_text(json.dumps(document))
    again = compare(
        replace(TINY, strategies=("single",), seed=1, workloads=("wavefront",), resume=True),
        tmp_path,
    )
    kept = [case for case in again.cases if case.workload == "fft"]
    assert all(("heft" in case.scores) == (case.group != "contention") for case in kept)
    assert {case.group for case in kept} == {case.group for case in other.cases}


def test_graphs_searched_for_against_an_earlier_strategy_do_not_stay(tmp_path: Path) -> None:
    options = SuiteOptions(("round_robin",), ("adversarial",), (2,), quick=True)
    compare(options, tmp_path)
    keys = cases_in(tmp_path)
    path = tmp_path / "adversarial.json"
    document = json.loads(path.read_text())
    key, case = next(iter(document["cases"].items()))
    # As after runs of which the last one was resumed: the file knows the present strategies only.
    document["cases"][f"earlier {key}"] = case | {
        "parameters": case["parameters"] | {"fingerprint": "an earlier one"}
    }
    path.write_text(json.dumps(document))
    compare(replace(options, resume=True), tmp_path)
    assert cases_in(tmp_path) == keys


def test_what_a_workload_took_is_in_the_file_before_the_next_one_is_measured(
    tmp_path: Path,
) -> None:
    written = []

    def measure(workload, *arguments):
        kept = read(tmp_path / "measured.json")
        rows = kept.measured.values() if kept else []
        written.append({(each.workload, each.strategy) for each in rows})
        return fake(workload, *arguments)

    options = SuiteOptions(("heft",), ("mlp", "digits"), (2,), quick=True, simulates=False)
    compare(options, tmp_path, measuring=Measuring(measure))
    assert written == [set(), {("mlp", "single"), ("mlp", "heft"), ("mlp", "fused")}]


def test_a_resumed_run_keeps_measurements_of_workloads_that_it_does_not_measure(
    tmp_path: Path,
) -> None:
    options = SuiteOptions(("heft",), ("mlp", "digits"), (2,), quick=True, simulates=False)
    compare(options, tmp_path, measuring=Measuring(fake))
    resumed = replace(options, workloads=("mlp",), resume=True)
    same = compare(resumed, tmp_path, measuring=Measuring(None))  # nothing is measured
    assert {each.workload for each in same.measured} == {"mlp", "digits"}
    more = compare(
        replace(resumed, strategies=("round_robin",)), tmp_path, measuring=Measuring(fake)
    )
    # Times of one workload are compared with each other, so all of them are of one run.
    found = {(each.workload, each.strategy) for each in more.measured}
    digits = {("digits", "single"), ("digits", "heft")}
    assert digits <= found
    assert {s for w, s in found if w == "mlp"} == {"single", "round_robin", "fused"}
    kept = read(tmp_path / "measured.json")
    assert kept is not None
    assert {(each.workload, each.strategy) for each in kept.measured.values()} == found
