"""Constants of the cost model from measured times.

Times of steps differ by orders of magnitude, so relative errors are what is fitted: the residual
of a step is the logarithm of its predicted time over the measured one. Constants are fitted as
multiples of those of the prior, in logarithms, which keeps them positive; a weak pull towards the
prior decides those that no step depends on. The loss is robust (soft L1), because a few kinds of
programs are not described well by the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

Vector = np.ndarray[Any, np.dtype[np.float64]]

PULL = 0.02
"""The weight of the prior: a constant that is off by a factor of e costs as much as an error of 2 %
of one step."""

MOST = np.log(1e3)
"""Constants stay within a factor of 1,000 of those of the prior."""


@dataclass(frozen=True)
class Fit:
    """The result of fitting constants.

    Attributes:
      seconds: what each count takes, f64[counts].
      errors: the relative error of the prediction of each step by constants that were fitted
        without it.
    """

    seconds: Vector
    errors: Vector

    @property
    def median_error(self) -> float:
        """The median of the errors."""
        return median_of(self.errors)


def median_of(errors: Vector) -> float:
    """Returns the median of errors; 0 if there are none."""
    return float(np.median(errors)) if errors.size else 0.0


def upper_of(errors: Vector) -> float:
    """Returns the upper quartile of errors; 0 if there are none."""
    return float(np.quantile(errors, 0.75)) if errors.size else 0.0


def fit_constants(counts: Vector, times: Vector, prior: Vector) -> Fit:
    """Fits constants whose products with the counts of each step add up to its time.

    Args:
      counts: f64[steps, counts].
      times: f64[steps] in seconds.
      prior: f64[counts], seconds; constants that are 0 stay so.
    """
    fitted = _fitted(counts, times, prior)
    errors = []
    for left_out in range(len(times)):
        rest = np.arange(len(times)) != left_out
        constants = _fitted(counts[rest], times[rest], prior, fitted)
        errors.append(abs(counts[left_out] @ constants / times[left_out] - 1))
    return Fit(fitted, np.array(errors))


def _fitted(counts: Vector, times: Vector, prior: Vector, begin: Vector | None = None) -> Vector:
    free = prior > 0
    parts = counts[:, free] * prior[free] / times[:, None]

    def residuals(logs: Vector) -> Vector:
        predicted = np.log(np.maximum(parts @ np.exp(logs), 1e-9))
        return np.concatenate([predicted, PULL * logs])

    def jacobian(logs: Vector) -> Vector:
        scaled = parts * np.exp(logs)
        total = np.maximum(scaled.sum(axis=1, keepdims=True), 1e-9)
        return np.concatenate([scaled / total, PULL * np.eye(len(logs))])

    start = np.zeros(int(free.sum())) if begin is None else np.log(begin[free] / prior[free])
    solved = least_squares(
        residuals,
        np.clip(start, -MOST, MOST),
        jac=jacobian,
        bounds=(-MOST - 1e-6, MOST + 1e-6),
        loss="soft_l1",
        f_scale=0.2,
    )
    constants = np.zeros(len(prior))
    constants[free] = prior[free] * np.exp(solved.x)
    return constants


def slope_of(xs: Sequence[float], times: Sequence[float]) -> float:
    """Returns the slope of the line with the least relative errors; no part of it is negative."""
    x, y = np.array(xs, float), np.array(times, float)
    columns = np.stack([np.ones_like(x), x], axis=1) / y[:, None]
    scale = np.array([1.0, max(float(x.max()), 1e-30)])
    start, slope = np.linalg.lstsq(columns / scale, np.ones_like(y), rcond=None)[0] / scale
    return max(float(slope if start >= 0 else 1 / np.mean(x / y)), 0.0)
