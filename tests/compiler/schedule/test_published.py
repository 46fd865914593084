"""Strategies against their published schedules."""

from __future__ import annotations

import pytest

from jflow.compiler.schedule import lower_bound, scheduled, simulate
from jflow.compiler.schedule.exact import optimal
from jflow.compiler.schedule.schedule import upward_ranks
from jflow.compiler.schedule.strategies import STRATEGIES
from tests.compiler.schedule.published import TOPCUOGLU


@pytest.mark.parametrize(("name", "makespan"), [("heft", 80), ("cpop", 86), ("peft", 85)])
def test_a_strategy_gives_its_published_makespan(name, makespan) -> None:
    assert simulate(TOPCUOGLU, scheduled(TOPCUOGLU, STRATEGIES[name])).makespan == makespan


def test_upward_ranks_are_the_published_ones() -> None:
    published = [108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert upward_ranks(TOPCUOGLU) == pytest.approx(published, abs=1e-3)


def test_the_optimum_is_the_known_one() -> None:
    found = optimal(TOPCUOGLU)
    assert found.is_proven
    assert found.makespan == pytest.approx(73)


def test_no_strategy_is_below_the_optimum_or_the_bound() -> None:
    for place in STRATEGIES.values():
        makespan = simulate(TOPCUOGLU, scheduled(TOPCUOGLU, place)).makespan
        assert makespan >= 73 - 1e-9 >= lower_bound(TOPCUOGLU)
