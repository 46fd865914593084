"""What fault tolerance costs when nothing fails: closures with it and without it."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

import jflow as tf
from bench.cases.coordinator import closures
from bench.timing import seconds, tell

N_TINY, N_STEPS, N_ROUNDS = 1000, 40, 30
NEVER_S = "3600"


def batches(
    stack: ExitStack, liveness: str | None, **options: Any
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Many tiny closures, and some steps of a perceptron, on a cluster of their own.

    Args:
      stack: ends the cluster.
      liveness: JFLOW_LIVENESS_S of its processes and connections; None for the default.
      options: of the coordinator.
    """
    if liveness is not None:
        os.environ["JFLOW_LIVENESS_S"] = liveness
    try:
        cluster = stack.enter_context(tf.LocalCluster(ps=1, workers=2))
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        stack.callback(strategy.close)
        coordinator = stack.enter_context(tf.ClusterCoordinator(strategy, **options))
        tiny, step = closures(strategy)
        rng = np.random.default_rng(0)
        batch = rng.random((64, 784), np.float32), rng.integers(0, 10, 64)

        def run(fn: Any, args: tuple[Any, ...], n: int) -> None:
            for _ in range(n):
                coordinator.schedule(fn, args=args)
            coordinator.join()

        for _ in range(5):  # connects to each worker, and compiles
            run(tiny, (), N_TINY)
            run(step, batch, N_STEPS)
            time.sleep(0.2)
        return lambda: run(tiny, (), N_TINY), lambda: run(step, batch, N_STEPS)
    finally:
        os.environ.pop("JFLOW_LIVENESS_S", None)


def medians(calls: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Median seconds by name; in every second round backwards, as the first is slower."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(N_ROUNDS):
        for name in sorted(calls, reverse=number % 2 == 1):
            taken[name].append(seconds(calls[name]))
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    """Heartbeats, a watchdog and claims, or none of them."""
    with ExitStack() as stack:
        tiny, step = batches(stack, None, watchdog_timeout=60.0)
        tiny_bare, step_bare = batches(stack, NEVER_S, name=None)
        with_it, without = "closure with fault tolerance", "closure without fault tolerance"
        figures = medians({f"tiny {with_it}": tiny, f"tiny {without}": tiny_bare})
        tell({name: taken / N_TINY for name, taken in figures.items()})
        figures = medians({f"MLP {with_it}": step, f"MLP {without}": step_bare})
        tell({name: taken / N_STEPS for name, taken in figures.items()})


if __name__ == "__main__":
    main()
