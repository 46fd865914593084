"""The goals of `auto`, and whether the results of a run reach them."""

from __future__ import annotations

import pytest

from jflow.lab.suite.goals import Goal, reached
from jflow.lab.suite.measured import MeasuredResult


def plan(workload: str, strategy: str, seconds: float, predicted: float) -> MeasuredResult:
    """A plan on two devices whose rounds differ by 2 %, so that its noise is 1 %."""
    times = tuple(seconds * factor for factor in (0.99, 0.99, 1.0, 1.01, 1.01))
    return MeasuredResult(workload, 2, strategy, times, predicted, predicted)


GOOD = [plan("mlp", "single", 1.0, 1.05), plan("mlp", "heft", 2.0, 2.1)]


def goals(*more: MeasuredResult) -> dict[str, Goal]:
    return {goal.about: goal for goal in reached([], [*GOOD, *more]) if goal.name == "G4"}


def test_plans_that_are_predicted_well_reach_all_three_figures() -> None:
    error, rank, regret = goals().values()
    assert (error.found, rank.found, regret.found) == ("mlp 5%", "mlp 1.00", "mlp 0%")
    assert error.is_reached
    assert rank.is_reached
    assert regret.is_reached


@pytest.mark.parametrize(
    ("predicted", "missed"),
    [((3.0, 6.0), {"error"}), ((2.0, 1.0), {"error", "rank", "regret"})],
)
def test_one_workload_that_is_predicted_badly_misses_a_goal(predicted, missed: set[str]) -> None:
    others = [
        plan(name, strategy, seconds, seconds)
        for name in ("digits", "wide_and_deep")
        for strategy, seconds in (("single", 1.0), ("heft", 2.0))
    ]
    bad = [plan("moe", "single", 1.0, predicted[0]), plan("moe", "heft", 2.0, predicted[1])]
    found = goals(*others, *bad)
    assert {about.split()[0] for about, goal in found.items() if not goal.is_reached} == missed
    assert "moe" in found["error of predicted step times"].found


def test_the_limit_of_noisy_plans_is_twice_their_noise_and_said() -> None:
    times = (0.8, 0.8, 1.0, 1.2, 1.2)
    noisy = MeasuredResult("moe", 2, "single", times, 1.3, 1.3)
    goal = goals(noisy)["error of predicted step times"]
    assert goal.found == "mlp 5%, moe 30% (noise allows 40%)"
    assert goal.is_reached
