"""Runs workloads on real processes for the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from jflow.base.handles import Closing
from jflow.compiler.schedule import PlaceFunction, scheduled
from jflow.lab.families import random_problem
from jflow.lab.measure import FUSED, CheckedAlternative, Measurement, MeasuringCluster
from jflow.lab.suite.cases import TIMED
from jflow.lab.suite.measured import StepTimes
from jflow.lab.timed import TimedCluster, run_timed, timed_problem
from jflow.lab.workloads import WORKLOADS

_OPERATIONS = 16
_OPERATION_SECONDS = 0.02
"""The mean time that an operation sleeps: much longer than a message between two processes."""

_STEPS = 5


def _of(measured: Measurement) -> StepTimes:
    if measured.placement == FUSED:
        return StepTimes(measured.times, 0.0, 0.0)  # nothing is predicted of it
    predicted = measured.predicted, measured.staged
    return StepTimes(measured.times, *predicted, measured.is_correct, measured.slowdown)


class ProcessMeasurer(Closing):
    """Runs workloads on processes of this machine, which end with its `with` block.

    Args:
      scale: the size of the models.
      seed: of the random graphs of timed mode.
      quick: whether to calibrate in seconds instead of a minute.
    """

    def __init__(self, scale: str = "cpu", seed: int = 0, *, quick: bool = True) -> None:
        self._scale = scale
        self._quick = quick
        self._seed = seed
        self._clusters = ExitStack()
        self._cluster: MeasuringCluster | TimedCluster | None = None
        self._key: tuple[bool, int] | None = None

    def __call__(
        self, workload: str, n_devices: int, placements: Sequence[PlaceFunction], rounds: int
    ) -> Sequence[StepTimes]:
        """See `Measurer`. A workload "timed FAMILY" is a random graph whose operations sleep."""
        is_timed = workload.startswith(f"{TIMED} ")
        cluster = self._ready(is_timed, n_devices)
        try:
            if isinstance(cluster, TimedCluster):
                family = workload.removeprefix(f"{TIMED} ")
                return [self._timed(cluster, family, n_devices, each) for each in placements]
            models_placements: list[Any] = [each for each in placements if each.__name__ != FUSED]
            with_fused = len(models_placements) < len(placements)
            model = WORKLOADS[workload]
            measurements = cluster.measure(
                model, self._scale, models_placements, rounds=rounds, with_fused=with_fused
            )
            return [_of(measurements[place.__name__]) for place in placements]
        except Exception:
            self._end()  # what failed may have left it in any state
            raise

    def alternatives(
        self, workload: str, strategy: str, n_devices: int, rounds: int, seed: int
    ) -> Sequence[CheckedAlternative]:
        """See `AlternativesChecker`."""
        cluster = self._ready(False, n_devices)
        assert isinstance(cluster, MeasuringCluster)
        model = WORKLOADS[workload]
        return cluster.check_alternatives(model, self._scale, strategy, rounds=rounds, seed=seed)

    def _timed(
        self, cluster: TimedCluster, family: str, n_devices: int, place: PlaceFunction
    ) -> StepTimes:
        drawn = random_problem(family, _OPERATIONS, n_devices, seed=self._seed)
        problem = timed_problem(drawn, _OPERATION_SECONDS)
        run = run_timed(cluster, problem, scheduled(problem, place), n_steps=_STEPS)
        return StepTimes(run.times, run.simulated, run.staged)

    def _ready(self, is_timed: bool, n_devices: int) -> MeasuringCluster | TimedCluster:
        """The cluster that is there, if it is of the right kind and size, or another one."""
        if self._cluster is None or self._key != (is_timed, n_devices):
            self._end()
            cluster = TimedCluster(n_devices) if is_timed else MeasuringCluster(n_devices)
            self._clusters.enter_context(cluster)
            if isinstance(cluster, MeasuringCluster):
                self._clusters.enter_context(cluster.calibrated(quick=self._quick))
            self._cluster, self._key = cluster, (is_timed, n_devices)
        return self._cluster

    def _end(self) -> None:
        self._cluster = None
        self._clusters.close()

    def _leave(self, failed: bool) -> None:
        self._end()
