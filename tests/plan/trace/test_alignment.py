"""Alignment of clocks from a request and its answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jflow.plan.trace.alignment import Exchange, offset_of

SECONDS = st.floats(0, 10, allow_subnormal=False)


@given(st.floats(-1e4, 1e4), SECONDS, SECONDS, SECONDS, st.booleans())
def test_the_offset_is_as_exact_as_it_says(
    offset: float, there: float, work: float, back: float, is_one_clock: bool
) -> None:
    sent = 100.0
    begun = sent + there - offset
    ended = begun + work
    answered = ended + offset + back
    is_one_clock = is_one_clock and offset == 0.0
    found, error = offset_of(Exchange(sent, begun, ended, answered, is_one_clock))
    assert abs(found - offset) <= error + 1e-9
    assert error <= (there + back) / 2 + 1e-9


@given(SECONDS, SECONDS)
def test_the_error_is_half_of_the_round_trip(there: float, back: float) -> None:
    _, error = offset_of(Exchange(0.0, 50.0 + there, 51.0 + there, 1.0 + there + back))
    assert abs(error - (there + back) / 2) < 1e-9


def test_processes_with_one_clock_need_no_offset() -> None:
    assert offset_of(Exchange(1.0, 1.5, 2.0, 2.1, is_one_clock=True)) == (0.0, 0.0)


def test_one_clock_that_contradicts_the_times_is_not_believed() -> None:
    found, error = offset_of(Exchange(1.0, 101.5, 102.0, 2.1, is_one_clock=True))
    assert abs(found + 100) < 0.5
    assert error > 0
