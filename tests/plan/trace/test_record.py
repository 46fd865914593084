"""What a task notes of a traced step, and its way over the wire."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jflow.errors import InvalidArgumentError
from jflow.plan.trace import record as module
from jflow.plan.trace.record import Exchange, Recorder, TaskRecord, offset_of
from jflow.plan.trace.spans import CALL, PROGRAM


class Clock:
    """A clock that goes on by a second whenever it is read."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 1.0
        return self.time


def recorded() -> TaskRecord:
    recorder = Recorder("/job:ps/task:0", Clock())  # at 1
    first, second = object(), object()
    plan = recorder.of_plan("/job:ps/task:0/device:CPU:1", [first, second])
    recorder.arrived(7)  # at 2
    plan.span(PROGRAM, second, 1.5, 1.75)  # at 3
    plan.received(7, 64, 3.5)  # at 4
    plan.received(8, 0, 4.5)  # at 5; it came before the step began here
    plan.sent(9)  # at 6
    plan.span(CALL, first, 6.5)  # at 7
    return recorder.record()  # at 8


def test_a_record_has_what_was_noted() -> None:
    record = recorded()
    assert (record.begun, record.ended, record.n_dropped) == (1.0, 8.0, 0)
    assert record.devices == ("/job:ps/task:0/device:CPU:1",)
    assert record.rows("spans").tolist() == [[0, 1, 1, 1.5, 1.75, 3.0], [0, 0, 2, 6.5, 7.0, 7.0]]
    assert record.rows("received").tolist() == [[7, 64, 2.0, 3.5, 4.0], [8, 0, 1.0, 4.5, 5.0]]
    assert record.rows("sent").tolist() == [[9, 6.0]]


def test_a_record_travels_as_bytes() -> None:
    assert TaskRecord.from_bytes(recorded().to_bytes()) == recorded()


def test_a_shifted_record_has_other_times_and_the_same_rest() -> None:
    record, shifted = recorded(), recorded().shifted(10.0, 0.25).shifted(0.0, 0.5)
    assert (shifted.begun, shifted.ended, shifted.error) == (11.0, 18.0, 0.75)
    np.testing.assert_array_equal(
        shifted.rows("spans") - record.rows("spans"), [[0, 0, 0, 10, 10, 10]] * 2
    )
    np.testing.assert_array_equal(
        shifted.rows("received") - record.rows("received"), [[0, 0, 10, 10, 10]] * 2
    )
    np.testing.assert_array_equal(shifted.rows("sent") - record.rows("sent"), [[0, 10]])


def test_a_long_step_is_noted_up_to_a_limit_and_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 3)
    recorder = Recorder("/job:ps/task:0", Clock())
    plan = recorder.of_plan("/device:CPU:0", [])
    for edge in range(5):
        plan.sent(edge)
    record = recorder.record()
    assert record.rows("sent")[:, 0].tolist() == [0, 1, 2]
    assert record.n_dropped == 2


def test_the_largest_record_fits_its_limits() -> None:
    rows = np.zeros((module.MAX_ROWS, 6)).tobytes()
    record = replace(recorded(), spans=rows, received=np.zeros((module.MAX_ROWS, 5)).tobytes())
    assert TaskRecord.from_bytes(record.to_bytes()) == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spans": b"1234"}, "rows of 6 numbers as spans"),
        ({"sent": np.array([1.0, np.nan]).tobytes()}, "finite numbers as sent"),
        ({"spans": np.array([1.0, 0, 0, 0, 0, 0]).tobytes()}, "positions below 1"),
        ({"spans": np.array([0.0, 0, 5, 0, 0, 0]).tobytes()}, "positions below 5"),
    ],
)
def test_malformed_rows_are_refused(change: dict[str, bytes], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        replace(recorded(), **change)


# Alignment of clocks from a request and its answer -----------------------------------------------

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
