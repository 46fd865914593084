"""A calibration as text, and how good predictions by one are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import kendalltau

from jflow.compiler.placement.calibration import DOUBTFUL, Calibration
from jflow.errors import InvalidArgumentError


def calibration_report(calibration: Calibration, *, now: Callable[[], float] = time.time) -> str:
    """Returns a calibration as text: rates, links, ports, age and errors, in several lines.

    Args:
      calibration: what to describe.
      now: gives seconds since 1970.
    """
    lines = [_origin(calibration, now())]
    for kind, rates in calibration.rates.items():
        lines.append(
            f"{kind}: {rates.flops / 1e9:.3g} Gflop/s in products, "
            f"{rates.convolutions / 1e9:.3g} in convolutions; "
            f"{rates.elements / 1e9:.3g} G simple and {rates.transcendentals / 1e9:.3g} G "
            f"transcendental operations/s"
        )
        lines.append(
            f"{kind}: {rates.near_bandwidth / 1e9:.3g} GB/s in caches, "
            f"{rates.far_bandwidth / 1e9:.3g} GB/s beyond; {_micro(rates.dispatch)} a program, "
            f"{_micro(rates.kernel)} a kernel, {_micro(rates.reduction)} a reduction, "
            f"{_micro(rates.iteration)} an iteration, {_micro(rates.call)} a host call"
        )
        lines.append(
            f"{kind} meshes: {_micro(rates.mesh_dispatch)} a program, {_micro(rates.message)} a "
            f"message of a collective, {rates.sent_bandwidth / 1e9:.3g} GB/s"
        )
    for kind, link in calibration.links.items():
        lines.append(
            f"link {kind}: {_micro(link.latency)} and {link.bandwidth / 1e9:.3g} GB/s; processors "
            f"of both tasks are busy for {_micro(link.overhead)} and "
            f"{link.processor_share:.0%} of the time of the bytes"
        )
    for kind, seconds in calibration.step_seconds.items():
        task = calibration.task_seconds.get(kind, 0.0)
        lines.append(f"step over {kind}: {_micro(seconds)}, and {_micro(task)} a further task")
    lines.append(
        f"ports: a transfer occupies them for {calibration.port_share:.0%} of its time, and its "
        f"sender's for receiving for {calibration.duplex_share:.0%}; "
        f"overlap of transfers and computing: {calibration.overlap:.0%}"
    )
    lines.append(
        f"so programs may take {calibration.work_error:.0%} less, and what is sent "
        f"{calibration.message_error:.0%} more, than estimated: `auto` allows for both"
    )
    lines += [f"error of {name}: {error:.1%}" for name, error in calibration.errors.items()]
    if calibration.collective_error:
        error = f"{calibration.collective_error:.1%}"
        lines.append(f"error of collectives, each predicted from the others: {error}")
    if calibration.doubts:
        lines.append(
            f"doubtful, as its checks are off by more than {DOUBTFUL:.0%} "
            f"({'; '.join(calibration.doubts)}): calibrate again when nothing else runs"
        )
    return "\n".join(lines)


def _origin(calibration: Calibration, now: float) -> str:
    machine = calibration.machine
    if machine is None:
        return "the prior: nothing is measured"
    days = max(now - calibration.made, 0.0) / 86_400
    age = "today" if days < 1 else f"{days:.0f} days ago"
    return (
        f"measured {age} on {machine.host} ({machine.processor}, {machine.n_cores} cores, "
        f"jax {machine.jax}, jaxlib {machine.jaxlib})"
    )


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs"


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
        """The median error."""
        return float(np.median(self.errors))

    @property
    def p90_error(self) -> float:
        """The 90th percentile of the errors."""
        return float(np.quantile(self.errors, 0.9))

    def text(self) -> str:
        """Returns the check as one line of text."""
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
