"""Fits of synthetic times recover the constants that made them."""

from __future__ import annotations

import numpy as np
import pytest

from jflow.lab.calibration.fit import fit_constants, slope_of

PRIOR = np.array([1e-10, 1e-9, 1e-6, 1e-4])


def counts(n: int, seed: int) -> np.ndarray:
    """Counts of steps of which each depends mostly on one or two constants."""
    rng = np.random.default_rng(seed)
    base = 1e-3 * rng.lognormal(0, 1, (n, 4)) * (rng.random((n, 4)) < 0.6) / PRIOR
    base[:, 3] = 1.0
    return base


def test_constants_are_recovered() -> None:
    wanted = PRIOR * [3.0, 0.2, 8.0, 5.0]
    work = counts(30, 1)
    fit = fit_constants(work, work @ wanted, PRIOR)
    assert fit.seconds == pytest.approx(wanted, rel=0.05)
    assert fit.median_error < 0.02


def test_noise_and_one_odd_step_do_little_harm() -> None:
    wanted = PRIOR * [3.0, 0.2, 8.0, 5.0]
    work = counts(40, 2)
    times = work @ wanted * np.random.default_rng(3).lognormal(0, 0.05, 40)
    times[7] *= 100
    fit = fit_constants(work, times, PRIOR)
    assert fit.seconds == pytest.approx(wanted, rel=0.15)
    assert fit.median_error < 0.1


def test_what_no_step_depends_on_stays_as_in_the_prior() -> None:
    work = counts(20, 4)
    work[:, 1] = 0.0
    fit = fit_constants(work, work @ (PRIOR * 4.0), PRIOR)
    assert fit.seconds[1] == pytest.approx(PRIOR[1])
    assert fit.seconds[[0, 2, 3]] == pytest.approx(4.0 * PRIOR[[0, 2, 3]], rel=0.05)


def test_a_constant_that_is_0_in_the_prior_stays_0() -> None:
    prior = PRIOR * [1, 0, 1, 1]
    work = counts(20, 5)
    assert fit_constants(work, work @ prior, prior).seconds[1] == 0.0


def test_the_error_is_that_of_constants_that_were_fitted_without_the_step() -> None:
    work = counts(20, 6)
    work[0, 2] = 1e4
    work[1:, 2] = 0.0  # nothing else tells the third constant
    times = work @ (PRIOR * [1, 1, 50, 1])
    errors = fit_constants(work, times, PRIOR).errors
    assert errors[0] > 0.9
    assert np.median(errors[1:]) < 0.05


def test_the_slope_of_a_line_is_recovered() -> None:
    xs = [1e3, 1e5, 1e6, 1e7]
    assert slope_of(xs, [2e-4 + 1e-9 * x for x in xs]) == pytest.approx(1e-9)


def test_neither_part_of_a_line_is_negative() -> None:
    assert slope_of([1, 2, 4], [3.0, 2.0, 1.0]) == 0.0
    through = slope_of([1, 2, 4], [0.1, 2.0, 8.0])  # the best one would begin below 0
    assert through == pytest.approx(3 / (1 / 0.1 + 2 / 2.0 + 4 / 8.0))
