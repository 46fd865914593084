"""What fault tolerance costs when nothing fails: closures with it and without it, in turn."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

os.environ.setdefault("BENCH_ROUNDS", "25")  # because 2 % are to be seen

import jflow as tf
from bench.cases.coordinator import closures
from bench.timing import ROUNDS, alternate, tell

N_TINY, N_STEPS = 1000, 40
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


def main() -> None:
    """Heartbeats, a watchdog and claims, or none of them."""
    with ExitStack() as stack:
        tiny, step = batches(stack, None, watchdog_timeout=60.0)
        tiny_bare, step_bare = batches(stack, NEVER_S, name=None)
        taken = alternate(
            {
                "tiny closure with fault tolerance": tiny,
                "tiny closure without fault tolerance": tiny_bare,
                "MLP closure with fault tolerance": step,
                "MLP closure without fault tolerance": step_bare,
            },
            1,
            ROUNDS,
        )
        n = {"tiny": N_TINY, "MLP": N_STEPS}
        tell({name: seconds / n[name.split()[0]] for name, seconds in taken.items()})


if __name__ == "__main__":
    main()
