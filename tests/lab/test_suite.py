"""The comparison of strategies, as a whole and by its statistics."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from jflow.compiler.schedule import (
    BUFFERED,
    UNLIMITED,
    Constraints,
    Problem,
    Schedule,
    predicted_seconds,
    scheduled,
    simulate,
)
from jflow.compiler.schedule.exact import optimal
from jflow.compiler.schedule.strategies import STRATEGIES, choose
from jflow.errors import InvalidArgumentError
from jflow.lab.families import random_problem
from jflow.lab.measure import FUSED
from jflow.lab.optima import KnownOptimum, OptimumCase, digest_of, write_optima
from jflow.lab.suite import Measuring, ProcessMeasurer, SuiteOptions, adversarial, compare
from jflow.lab.suite.cases import (
    CLUSTERS,
    HALF_BANDWIDTH,
    MODELS,
    NOISES,
    SLOW_DEVICE,
    CaseRange,
    SuiteCase,
    simulated_cases,
    surprised,
)
from jflow.lab.suite.contenders import Contender, contenders_of
from jflow.lab.suite.measured import MeasuredResult, StepTimes, accuracy_of, losses_to_single
from jflow.lab.suite.scoring import CaseResult, Score, result_of, skipped
from jflow.lab.suite.summary import (
    best_fixed,
    feasibility_of,
    figures_of,
    quantile,
    to_best,
    verdict_of,
)
from tests.lab import strategies_of_users

MINE = "tests.lab.strategies_of_users:"
pytestmark = pytest.mark.usefixtures("no_proofs")

SHORT = SuiteOptions(("heft", "round_robin"), ("layered",), (2,), quick=True)


def result(group: str = "contention", *, workload: str = "layered", **makespans) -> CaseResult:
    """A result with the makespans of strategies; None for one that gave nothing."""
    scores = {
        name: Score(makespan, 0.1, 0.0, "" if makespan else "no room", makespan is None)
        for name, makespan in makespans.items()
    }
    return CaseResult(
        *(group, workload, 2, {"ccr": 1.0, "memory": 1.1}, "", 10, 1.0, None, True, scores)
    )


def timed(strategy: str, times: list[float], predicted: float = 1.0) -> MeasuredResult:
    return MeasuredResult("mlp", 2, strategy, tuple(times), predicted, predicted)


# Runs -------------------------------------------------------------------------------------------


def test_a_strategy_of_a_user_is_in_every_table_beside_those_that_ship(tmp_path: Path) -> None:
    options = replace(SHORT, strategies=[strategies_of_users.alternate, "heft"])
    (tmp_path / "NOTES.md").write_text("## What it means\n")
    comparison = compare(options, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert page.endswith("\n## What it means\n")
    for group in ("small", "contention", "memory", "surprises", "clusters"):
        rows = [line.split(" | ")[0] for line in comparison.table(group).splitlines()]
        assert {"| alternate", "| heft", "| single"} <= set(rows)
        assert comparison.table(group) in page
        assert json.loads((tmp_path / f"{group}.json").read_text())["cases"]
    assert comparison.table("imported") == ""


def test_equal_seeds_give_equal_results_and_others_do_not() -> None:
    def makespans(seed: int) -> list[float | None]:
        found = compare(replace(SHORT, seed=seed)).cases
        return [score.makespan for each in found for score in each.scores.values()]

    assert makespans(1) == makespans(1)
    assert makespans(1) != makespans(2)


def test_what_a_strategy_does_wrong_is_in_the_table_and_the_run_goes_on(tmp_path: Path) -> None:
    options = replace(SHORT, strategies=[MINE + "raising", MINE + "forgetful", "heft"])
    comparison = compare(options, tmp_path)
    page = (tmp_path / "README.md").read_text()
    heft = [each.scores["heft"] for each in comparison.cases]
    assert all(score.makespan is not None or score.is_infeasible for score in heft)
    assert f"`{MINE}raising`, in {len(heft)} cases" in page
    assert "KeyError: 'no such cost'" in page
    assert "strategy forgetful gives no device for 0" in page


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategies": ["hefty"]}, "there is no placement strategy 'hefty'"),
        ({"strategies": ["rules"]}, "the placement rules are no strategy"),
        ({"strategies": ["no_such_module:place"]}, "cannot be imported"),
        ({"strategies": [strategies_of_users.alternate, MINE + "x"]}, "has no attribute 'x'"),
        ({"strategies": ["heft", lambda *_: None, lambda *_: 0]}, "two strategies .* '<lambda>'"),
        ({"workloads": ["layerd"]}, "there is no workload 'layerd'; there are all, layered"),
        ({"workloads": ["imported"]}, "imported graphs need the folder"),
        ({"workloads": []}, "expected workloads"),
        ({"devices": [1, 2]}, "2 or more, got 1, 2"),
        ({"devices": []}, "2 or more, got none"),
        ({"resume": True}, "to resume a run, say in which folder"),
    ],
)
def test_what_does_not_exist_is_refused_before_anything_runs(options, words) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        compare(replace(SHORT, **options))


# Cases ------------------------------------------------------------------------------------------


def test_cases_differ_and_their_keys_depend_on_all_that_they_depend_on() -> None:
    families = ["layered", "fft"]
    cases = [*simulated_cases(CaseRange(families, (2, 4)))]
    others = [*simulated_cases(CaseRange(families, (2, 4), seed=1))]
    keys = {case.key for case in cases}
    assert len(keys) == len(cases)
    assert not keys & {case.key for case in others}
    problems = {}
    for case in cases:
        if case.group != CLUSTERS:
            digest = digest_of(case.actual(case.build()))
            assert problems.setdefault(digest, case) is case
    assert len({case.group for case in cases}) == 6


@pytest.mark.parametrize("surprise", [*NOISES, SLOW_DEVICE, HALF_BANDWIDTH])
def test_a_surprise_changes_times_and_nothing_else(surprise) -> None:
    problem = random_problem("layered", 20, 3, seed=1)
    actual = surprised(problem, surprise, 5)
    schedule = scheduled(problem, STRATEGIES["round_robin"])
    assert actual.graph.successors == problem.graph.successors
    assert simulate(actual, schedule).makespan != simulate(problem, schedule).makespan
    assert digest_of(surprised(problem, surprise, 5)) == digest_of(actual)


def test_the_search_finds_a_worse_graph_than_it_starts_with() -> None:
    def badness(steps: int) -> float:
        problem = adversarial.adversarial_problem(STRATEGIES["heft"], steps=steps, seed=3)
        own = simulate(problem, scheduled(problem, STRATEGIES["heft"])).makespan
        rivals = (STRATEGIES[name] for name in adversarial.RIVALS if name != "heft")
        return own / min(simulate(problem, scheduled(problem, each)).makespan for each in rivals)

    assert badness(80) > badness(0) * 1.2


def test_a_strategy_that_fails_is_no_reason_not_to_compare_the_others() -> None:
    adversarial.adversarial_problem(strategies_of_users.raising, steps=5, seed=0)


def test_what_took_long_on_a_small_cluster_is_not_tried_on_a_large_one() -> None:
    case = SuiteCase(CLUSTERS, "layered", 64, {}, lambda: random_problem("layered", 5, 64))
    before = result(CLUSTERS, single=1.0, heft=1.0)
    slow = replace(before, scores={**before.scores, "etf": Score(1.0, 20.0)})
    found = skipped(case, [slow], patience=60)
    assert [*found] == ["etf"]
    assert found["etf"].refused == "not tried: it took 20 s with 2 devices"
    larger = replace(case, n_devices=1024)
    skips = skipped(larger, [slow, replace(slow, n_devices=64, scores=found)], patience=1e9)
    assert [*skips] == ["etf"]
    made = result_of(case, contenders_of(["heft"]), skipping=found, optima={})
    assert made.scores["etf"].is_skipped
    assert made.scores["heft"].makespan is not None


def test_a_known_optimum_is_not_proven_again(monkeypatch) -> None:
    def never(*_, **__):
        raise AssertionError("proven again")

    case = next(iter(simulated_cases(CaseRange(["layered"], (2,)))))
    monkeypatch.setattr("jflow.lab.suite.scoring.optimal", never)
    optima = {digest_of(case.build()): 0.125}
    found = result_of(case, contenders_of(["heft"]), skipping={}, optima=optima)
    assert found.optimum == 0.125


def test_the_optimum_of_a_small_case_is_proven_where_it_is_not_known(monkeypatch) -> None:
    monkeypatch.setattr("jflow.lab.suite.scoring.optimal", optimal)
    case = next(iter(simulated_cases(CaseRange(["gaussian_elimination"], (2,), quick=True))))
    found = result_of(case, contenders_of(["heft", "etf"]), skipping={}, optima={})
    assert found.optimum is not None
    assert found.bound <= found.optimum * (1 + 1e-6)
    assert found.optimum <= min(score.makespan for score in found.scores.values()) * (1 + 1e-4)


def test_small_cases_are_those_whose_optima_are_known(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("jflow.lab.optima.optimal", optimal)
    one = OptimumCase("layered", 6, 2, 1.0, 1.0, UNLIMITED, 3)
    problem = one.problem()
    best = optimal(problem)
    known = KnownOptimum(one, digest_of(problem), best.makespan, best.bound, "a solver")
    wrong = replace(known, case=replace(one, seed=4), makespan=1.0, bound=1.0)
    path = tmp_path / "optima.json"
    write_optima(path, [known])
    comparison = compare(replace(SHORT, optima=path), tmp_path / "results")
    (small,) = [each for each in comparison.cases if each.group == "small"]
    assert small.optimum == best.makespan
    assert "the optimum of 1 is proven" in (tmp_path / "results" / "README.md").read_text()
    assert comparison.proofs is not None
    assert (comparison.proofs.n, comparison.proofs.disagreements) == (1, [])
    write_optima(path, [wrong])
    proofs = compare(replace(SHORT, optima=path)).proofs
    assert proofs is not None
    assert "makes another graph" in proofs.disagreements[0]
    path.write_text("[1]")
    with pytest.raises(InvalidArgumentError, match=r"optima\.json is not a file of optima"):
        compare(replace(SHORT, optima=path))


def test_graphs_of_another_tool_are_cases(tmp_path: Path) -> None:
    graph = {
        "maxFPGAs": 2, "maxCPUs": 0, "maxSizePerFPGA": 3.0,
        "nodes": [
            {"id": i, "cpuLatency": 9.0, "fpgaLatency": 1.0, "supportedOnFpga": True, "size": 1.0}
            for i in range(4)
        ],
        "edges": [{"sourceId": 0, "destId": i, "cost": 0.1} for i in (1, 2, 3)],
    }  # fmt: skip
    (tmp_path / "tiny.json").write_text(json.dumps(graph))
    options = replace(SHORT, workloads=["imported"], imported=tmp_path)
    comparison = compare(options)
    assert {(each.workload, each.n_devices) for each in comparison.cases} == {
        ("tiny", 4),
        ("tiny", 8),
    }
    # One device takes 4, or 3 if it holds no more than that; three of them 1 + 2 * 0.2 + 1.
    assert "| single | 1.46 |" in comparison.table("imported")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InvalidArgumentError, match=r"other\.json has no list 'nodes'"):
        compare(options)
    with pytest.raises(InvalidArgumentError, match="there are no graphs"):
        compare(replace(options, imported=tmp_path / "nothing"))


# Statistics -------------------------------------------------------------------------------------


def test_figures_are_those_of_a_calculation_by_hand() -> None:
    results = [
        result(single=2.0, auto=1.0, heft=4.0),
        result(single=3.0, auto=3.0, heft=None),
        result(single=1.0, auto=2.0, heft=1.5),
    ]
    rows = {row.strategy: row for row in figures_of(results, to_best)}
    auto, heft = rows["auto"], rows["heft"]
    assert auto.mean == pytest.approx((1 + 1 + 2) / 3)
    assert (auto.largest, auto.share_best, auto.share_worse) == (2.0, 2 / 3, 1 / 3)
    assert auto.speed_up == pytest.approx((2 * 1 * 0.5) ** (1 / 3))
    assert (heft.n, heft.n_refused, heft.reason) == (2, 1, "no room")
    assert heft.mean == pytest.approx((4 + 1.5) / 2)
    assert quantile([*range(1, 101)], 0.95) == 95
    assert quantile([], 0.5) == math.inf


def test_feasibility_is_of_those_cases_for_which_there_is_a_placement() -> None:
    results = [
        result("memory", single=None, auto=1.0),
        result("memory", single=1.0, auto=1.0),
        replace(result("memory", single=None, auto=None), is_feasible=False),
    ]
    fractions = {each.strategy: each.fractions["1.1"] for each in feasibility_of(results)}
    assert fractions == {"auto": 1.0, "single": 0.5}


def test_the_best_fixed_strategy_is_chosen_on_other_families() -> None:
    results = [
        result(workload="layered", a=1.0, b=2.0),
        result(workload="fft", a=3.0, b=1.0),
    ]
    assert best_fixed(results) == (2.5, {"layered": "b", "fft": "a"})
    assert best_fixed(results[:1]) is None


def test_auto_is_chosen_and_scored_by_the_same_time() -> None:
    def build(seed: int) -> Problem:
        problem = random_problem("layered", 24, 4, ccr=0.3, network=BUFFERED, seed=seed)
        off, costs = 1.0 - np.eye(4), problem.costs
        costs = replace(
            costs,
            latency=0.2 * off,
            overhead=0.1 * off,
            processor_share=0.5 * off,
            are_estimates=True,
            in_stages=True,
            work_error=0.1,
            message_error=0.2,
        )
        pins = {i: (i % 4,) for i in range(0, 24, 3)}  # as variables that have a place already
        return problem._replace(costs=costs, constraints=Constraints(allowed=pins)).checked()

    def place(*parts) -> Schedule:
        few = [STRATEGIES["heft_c"], STRATEGIES["etf_c"]]
        return choose(Problem(*parts), few, moves=200, exact=False).schedule

    auto = Contender("auto", place, "")
    cases = [SuiteCase(MODELS, "layered", 4, {}, partial(build, seed)) for seed in range(6)]
    single = contenders_of(["single"])
    found = [result_of(case, [*single, auto], skipping={}, optima={}) for case in cases]
    for case, each in zip(cases, found, strict=True):
        problem = case.build()
        schedule = scheduled(problem, place)
        assert each.scores["auto"].makespan == predicted_seconds(problem, schedule)
        sent = sum(
            problem.graph.edges[transfer.edge].n_bytes
            for transfer in simulate(problem, schedule).transfers
        )
        assert each.scores["auto"].n_bytes == pytest.approx(sent)
    verdict = verdict_of(found, [])
    assert verdict.n_simulated == len(cases)
    assert not verdict.simulated_losses
    assert any(each.scores["auto"].makespan < each.scores["single"].makespan for each in found)


def test_auto_has_lost_only_where_one_device_was_faster_with_known_costs() -> None:
    won, lost = result(single=2.0, auto=1.0), result(single=1.0, auto=1.1)
    assert not verdict_of([won, replace(lost, surprise=SLOW_DEVICE)], []).has_lost
    assert verdict_of([won, lost], []).simulated_losses == [lost]


# Measurements -----------------------------------------------------------------------------------


TIMES = {"single": 2.0, "heft": 1.0, "round_robin": 4.0, "fused": 1.0}


def fake(workload, n_devices, placements, rounds):
    """Times that are 10 % above the prediction; "broken" raises, "wrong" computes nonsense."""
    if any(place.__name__ == "broken" for place in placements):
        raise RuntimeError("the cluster is gone")
    return [
        StepTimes(
            (TIMES[p.__name__] * 1.1,) * rounds,
            TIMES[p.__name__] * (p.__name__ != FUSED),
            TIMES[p.__name__] * 1.05 * (p.__name__ != FUSED),
        )
        for p in placements
    ]


def test_measurements_have_their_predictions_beside_them(tmp_path: Path) -> None:
    measuring = Measuring(fake)
    options = SuiteOptions(("heft", "round_robin"), ("mlp",), (2,), quick=True)
    comparison = compare(options, tmp_path, measuring=measuring)
    assert {each.group for each in comparison.cases} == {"models"}
    page = (tmp_path / "README.md").read_text()
    assert "| mlp | 2 | 3 | 5 % | 9 % | 5 % | 1.00 | 1.00 | 0 % | 0 % |" in page
    assert "| heft | 1.1 s ± 0 % (1.05 s) |" in page
    assert "| fused | 1.1 s ± 0 % |" in page
    goal = "| G7 | time on one device, by that of the fused step | ≤ 1.2 | mlp 2.00 | not judged |"
    assert goal in page
    again = compare(replace(options, resume=True), tmp_path, measuring=Measuring(None))
    assert [vars(each) for each in again.measured] == [
        {**vars(each), "times": [*each.times]} for each in comparison.measured
    ]


@pytest.mark.parametrize(
    ("workloads", "n_models"), [(("all",), 6), (("all", "seq2seq"), 7), (("transformer",), 1)]
)
def test_what_compiles_for_minutes_is_measured_only_if_it_is_named(workloads, n_models) -> None:
    options = SuiteOptions(("heft",), workloads, (2,), simulates=False)
    found = compare(options, measuring=Measuring(fake)).measured
    models = {each.workload for each in found if not each.workload.startswith("timed")}
    assert len(models) == n_models
    assert set(workloads) - {"all"} <= models


def test_a_run_that_does_not_simulate_only_measures() -> None:
    options = SuiteOptions(("heft",), ("mlp",), (2,), quick=True, simulates=False)
    comparison = compare(options, measuring=Measuring(fake))
    assert not comparison.cases
    assert {each.strategy for each in comparison.measured} == {"single", "heft", "fused"}


def test_what_fails_on_processes_is_refused_and_the_others_are_measured(tmp_path: Path) -> None:
    def broken(graph, devices, costs, constraints):
        return {}

    options = SuiteOptions(("heft", broken), ("mlp",), (2,), quick=True)
    comparison = compare(options, tmp_path, measuring=Measuring(fake))
    refused = {each.strategy: each.refused for each in comparison.measured}
    wanted = {"single": "", "heft": "", "fused": "", "broken": "RuntimeError: the cluster is gone"}
    assert refused == wanted
    assert "RuntimeError: the cluster is gone (mlp)" in (tmp_path / "README.md").read_text()


def test_more_processes_than_cores_run_in_timed_mode() -> None:
    seen = []

    def measure(workload, n_devices, placements, rounds):
        seen.append((workload, n_devices))
        return fake(workload, n_devices, placements, rounds)

    options = SuiteOptions(("heft",), ("timed",), (2,))
    found = compare(options, measuring=Measuring(measure)).measured
    assert ("timed layered", 8) in seen
    assert {each.n_devices for each in found} == {8}


@pytest.mark.long
def test_a_timed_run_takes_what_its_stages_are_predicted_to() -> None:
    with ProcessMeasurer() as measure:
        place = STRATEGIES["heft"]
        (found,) = measure("timed layered", 4, [place], 3)
        assert min(found.times) == pytest.approx(found.staged, rel=0.3)
        assert min(found.times) > 0.9 * found.staged


@pytest.mark.long
def test_a_model_is_run_under_each_placement() -> None:
    with ProcessMeasurer("small") as measure:
        found = measure("mlp", 2, [STRATEGIES["single"], STRATEGIES["round_robin"]], 3)
        assert [each.is_correct for each in found] == [True, True]
        assert all(len(each.times) == 3 and each.predicted > 0 for each in found)


def test_a_step_that_computes_something_else_does_not_count() -> None:
    def wrong(workload, n_devices, placements, rounds):
        return [StepTimes((1.0,), 1.0, 1.0, p.__name__ != "heft") for p in placements]

    options = SuiteOptions(("heft",), ("mlp",), (2,))
    found = compare(options, measuring=Measuring(wrong)).measured
    assert [each.strategy for each in found if each.refused] == ["heft"]


def test_predictions_are_judged_by_error_rank_and_regret() -> None:
    plans = [
        timed("a", [1.0] * 7, 1.1),
        timed("b", [2.0] * 7, 1.0),
        timed("c", [4.0] * 7, 4.0),
    ]
    found = accuracy_of(plans)
    assert found is not None
    assert found.error == pytest.approx(0.1)
    assert found.tau == pytest.approx(1 / 3)  # two pairs in order, one not
    assert found.regret == pytest.approx(1.0)
    assert found.noise == 0.0


def test_a_machine_that_has_become_slower_is_no_error_of_predictions() -> None:
    plans = [replace(timed("a", [2.0] * 7, 1.0), slowdown=1.9)]
    plans.append(replace(timed("b", [4.0] * 7, 2.0), slowdown=1.9))
    found = accuracy_of(plans)
    assert found is not None
    assert found.error == pytest.approx(0.05)
    assert found.slowdown == 1.9


def test_plans_within_the_noise_have_no_rank() -> None:
    noisy = [1.0, 1.1, 0.9, 1.2, 0.8, 1.0, 1.1]
    found = accuracy_of([timed("a", noisy, 1.0), timed("b", [1.02] * 7, 0.5)])
    assert found is not None
    assert found.tau is None


def test_a_loss_is_one_that_the_noise_does_not_explain() -> None:
    noisy = [1.0, 1.2, 0.8, 1.3, 0.7, 1.0, 1.1]
    single = timed("single", [1.0] * 7)
    assert not losses_to_single([single, timed("auto", [t * 1.05 for t in noisy])], "auto")
    lost = timed("auto", [1.2] * 7)
    assert losses_to_single([single, lost], "auto") == [lost]
