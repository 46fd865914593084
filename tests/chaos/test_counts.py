"""What counters may show after rounds of closures in which tasks were lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.counts import AT_LEAST_ONCE, EXACTLY_ONCE, CountOutcome


def told(number: int, before: list[int], after: list[int], **others: Any) -> dict[str, Any]:
    """What a coordinator says of a round, each of which takes a second."""
    times = {"begun": float(number), "ended": number + 0.9}
    return {"before": before, "after": after, "is_whole": True, "n_rerun": 0, **times, **others}


@pytest.fixture
def exact() -> CountOutcome:
    return CountOutcome(0, EXACTLY_ONCE, 10)


def test_rounds_that_count_what_was_scheduled_are_right(exact) -> None:
    exact.check(told(0, [0, 0], [10, 10]))
    exact.check(told(1, [10, 10], [20, 20], n_rerun=3))
    exact.replace_coordinator()
    exact.check(told(2, [25, 25], [35, 35], n_rerun=1))
    assert exact.violations == []
    assert (exact.n_rounds, exact.n_whole, exact.n_checked, exact.n_rerun) == (3, 3, 6, 4)


def test_a_lost_increment_is_a_violation_in_both_modes(exact) -> None:
    for outcome in exact, CountOutcome(0, AT_LEAST_ONCE, 10):
        outcome.check(told(0, [0, 0], [10, 9]))
        (violation,) = outcome.violations
        assert "1 increments were lost on ps 1" in violation


def test_a_doubled_increment_is_a_violation_only_where_it_is_promised(exact) -> None:
    default = CountOutcome(0, AT_LEAST_ONCE, 10)
    for outcome in exact, default:
        outcome.check(told(0, [0, 0], [12, 10]))
        assert outcome.n_doubled == 2
    assert "2 increments were doubled on ps 0" in exact.violations[0]
    assert default.violations == []


def test_a_counter_is_excused_only_if_its_own_server_was_lost_in_the_round(exact) -> None:
    exact.may_die(0, 1.5)
    exact.has_died(0, 1.6)
    exact.check(told(0, [0, 0], [10, 10], is_whole=False))
    assert exact.violations == []
    exact.check(told(1, [10, 10], [4, 19], is_whole=False))
    assert len(exact.violations) == 1
    assert "1 increments were lost on ps 1" in exact.violations[0]
    exact.check(told(2, [4, 19], [13, 29], is_whole=False))
    assert "1 increments were lost on ps 0" in exact.violations[1]


def test_a_server_that_is_about_to_die_excuses_its_counter_until_it_has(exact) -> None:
    exact.may_die(1, 0.5)
    exact.check(told(0, [0, 0], [10, 0], is_whole=False))
    exact.check(told(1, [10, 0], [20, 0], is_whole=False))
    exact.has_died(1, 2.5)
    exact.check(told(2, [20, 0], [30, 3], is_whole=False))
    assert exact.violations == []
    exact.check(told(3, [30, 3], [40, 3], is_whole=False))
    assert len(exact.violations) == 1


def test_nothing_is_counted_between_two_rounds(exact) -> None:
    exact.check(told(0, [0, 0], [10, 10]))
    exact.check(told(1, [11, 10], [21, 20]))
    assert "1 increments came late on ps 0" in exact.violations[0]
    exact.check(told(2, [21, 19], [31, 29]))
    assert "1 increments were lost at rest on ps 1" in exact.violations[1]


def test_what_a_restored_server_shows_between_two_rounds_is_excused(exact) -> None:
    exact.check(told(0, [0, 0], [10, 10]))
    exact.may_die(0, 0.95)
    exact.has_died(0, 0.95)
    exact.check(told(1, [0, 10], [10, 20]))
    assert exact.violations == []
