"""Runs workloads on real processes for the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jflow.closing import Closing
from jflow.lab.measure import MeasuringCluster
from jflow.lab.suite.measured import StepTimes
from jflow.lab.workloads import WORKLOADS
from jflow.schedule import PlaceFunction


class ProcessMeasurer(Closing):
    """Runs workloads on processes of this machine, which end with its `with` block.

    Args:
      scale: the size of the workloads.
    """

    def __init__(self, scale: str = "cpu") -> None:
        self._scale = scale
        self._cluster: MeasuringCluster | None = None

    def __call__(
        self, workload: str, n_devices: int, placements: Sequence[PlaceFunction], rounds: int
    ) -> Sequence[StepTimes]:
        """See `Measurer`."""
        if self._cluster is None or self._cluster.n_devices != n_devices:
            self._end()
            self._cluster = MeasuringCluster(n_devices)
        given: list[Any] = [*placements]
        try:
            found = self._cluster.measure(WORKLOADS[workload], self._scale, given, rounds=rounds)
        except Exception:
            self._end()  # what failed may have left it in any state
            raise
        return [found[place.__name__] for place in placements]

    def _end(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.__exit__(None, None, None)

    def _leave(self, failed: bool) -> None:
        self._end()
