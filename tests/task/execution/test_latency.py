"""The expected time of programs and calls, by which a task decides where to run them."""

import math

import pytest

from jflow.task.execution.linked import DISTURBED_S, N_LATENCIES, Latency

QUICK, DISTURBED = 20e-6, 2e-3


def _after(*seconds):
    latency = Latency()
    for each in seconds:
        latency.note(each)
    return latency.seconds


def test_nothing_is_expected_to_be_quick_before_it_ran():
    assert Latency().seconds == math.inf
    assert Latency(0.0).seconds == 0.0


@pytest.mark.parametrize("n_disturbed", range(N_LATENCIES))
def test_quick_work_that_was_disturbed_now_and_then_is_expected_to_be_quick(n_disturbed):
    assert _after(QUICK, *[DISTURBED] * n_disturbed) == QUICK


def test_work_that_has_become_slow_is_expected_to_be_slow():
    assert _after(QUICK, *[DISTURBED] * N_LATENCIES) == DISTURBED


def test_a_first_run_that_was_slow_counts_no_more_after_a_quick_one():
    assert _after(0.5, QUICK) == QUICK
    assert _after(DISTURBED, QUICK, DISTURBED) == QUICK


def test_a_time_that_no_disturbance_explains_counts_at_once():
    long = 2 * DISTURBED_S
    assert _after(QUICK, QUICK, long) == long
    assert _after(QUICK, QUICK, long, QUICK) == QUICK
