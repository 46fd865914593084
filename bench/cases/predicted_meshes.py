"""Steps of a pipelined transformer on meshes, beside what the cost model says of them."""

from __future__ import annotations

from bench.timing import tell
from jflow.lab import WORKLOADS, MeasuringCluster

ROUNDS = 7


def main() -> None:
    """Times and predictions; a reference program says how much slower the machine has become."""
    for n_stages, mesh, name in (
        (2, None, "two stages"),
        (2, {"model": 2}, "two stages on meshes of two"),
        (1, {"model": 2}, "a mesh of two"),
    ):
        with MeasuringCluster(n_stages, mesh=mesh) as cluster, cluster.calibrated(quick=False):
            measured = cluster.measure(
                WORKLOADS["pipelined"], "cpu", ["auto"], rounds=ROUNDS, is_spread=True
            )
        found = measured["auto"]
        assert found.is_correct
        tell(
            {
                f"predicted transformer, {name}": found.staged * found.slowdown,
                f"measured transformer, {name}": found.median,
            }
        )


if __name__ == "__main__":
    main()
