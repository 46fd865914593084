"""How good predicted step times are, against measured ones of the same plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import kendalltau

from jflow.errors import InvalidArgumentError


@dataclass(frozen=True)
class PredictionCheck:
    """Predictions of the step times of several plans of one graph, against measured times.

    Attributes:
      errors: |predicted - measured| / measured of each plan.
      noise: the median of the relative repeat noises of the measurements.
      tau: Kendall's tau-b of predicted and measured times; NaN if all of either are equal.
      tau_beyond_noise: (concordant - discordant) / all, of the pairs of plans whose measured times
        differ by more than both of their noises; NaN if there is none.
      n_pairs: the number of these pairs.
      regret: measured time of the plan with the least predicted time, over the least measured time,
        minus 1.
    """

    errors: tuple[float, ...]
    noise: float
    tau: float
    tau_beyond_noise: float
    n_pairs: int
    regret: float

    @property
    def median_error(self) -> float:
        """The median of the errors."""
        return float(np.median(self.errors))

    @property
    def p90_error(self) -> float:
        """The error that nine of ten plans do not exceed."""
        return float(np.quantile(self.errors, 0.9))

    def text(self) -> str:
        """One line."""
        return (
            f"{len(self.errors)} plans: error {self.median_error:.1%} median, "
            f"{self.p90_error:.1%} p90; tau {self.tau:.2f}, {self.tau_beyond_noise:.2f} on "
            f"{self.n_pairs} pairs beyond the noise; regret {self.regret:.1%}; repeat noise "
            f"{self.noise:.1%}"
        )


def check_predictions(
    predicted: Sequence[float], measured: Sequence[float], noises: Sequence[float]
) -> PredictionCheck:
    """Compares the predicted times of plans with measured ones.

    Args:
      predicted: seconds of each plan.
      measured: likewise, each above 0.
      noises: the relative difference of two measurements of each plan.

    Raises:
      InvalidArgumentError: if there are no plans, their numbers differ, or a time is not above 0.
    """
    if not len(predicted) == len(measured) == len(noises) or not predicted:
        raise InvalidArgumentError(
            "expected as many predicted times as measured ones and noises, and at least one, got "
            f"{len(predicted)}, {len(measured)} and {len(noises)}"
        )
    if min(measured) <= 0:
        raise InvalidArgumentError(f"expected measured times above 0, got {min(measured)}")
    first = min(range(len(predicted)), key=predicted.__getitem__)
    agreeing, n_pairs = _beyond_noise(predicted, measured, noises)
    return PredictionCheck(
        tuple(abs(p - m) / m for p, m in zip(predicted, measured, strict=True)),
        float(np.median(noises)),
        float(kendalltau(predicted, measured).statistic) if len(predicted) > 1 else float("nan"),
        agreeing / n_pairs if n_pairs else float("nan"),
        n_pairs,
        measured[first] / min(measured) - 1,
    )


def _beyond_noise(
    predicted: Sequence[float], measured: Sequence[float], noises: Sequence[float]
) -> tuple[float, int]:
    """Concordant minus discordant pairs, and the number of pairs that differ beyond their noise."""
    agreeing, n_pairs = 0.0, 0
    for i, j in combinations(range(len(measured)), 2):
        difference = measured[i] - measured[j]
        if abs(difference) > max(noises[i] * measured[i], noises[j] * measured[j]):
            n_pairs += 1
            agreeing += float(np.sign(difference) * np.sign(predicted[i] - predicted[j]))
    return agreeing, n_pairs
