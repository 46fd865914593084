"""A training step of a task that has a GPU to itself, and of two tasks at once that share it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import jax

import jflow as tf
from bench.cases.local import mlp_step
from bench.timing import ROUNDS, seconds, tell

N = 100


def _training(stack: ExitStack, cluster: tf.LocalCluster, index: int) -> Callable[[], Any]:
    with tf.Graph().as_default() as graph, tf.device(f"/job:worker/task:{index}/gpu:0"):
        session = stack.enter_context(tf.Session(cluster.target("worker", index), graph=graph))
        return mlp_step(session)


def main() -> None:
    """Prints the time of a step."""
    jax.config.update("jax_platforms", "cpu")  # or this process would take a part of the GPU too
    with ExitStack() as stack:
        cluster = stack.enter_context(tf.LocalCluster(ps=0, workers=2))
        steps = [_training(stack, cluster, index) for index in (0, 1)]
        threads = stack.enter_context(ThreadPoolExecutor(2))
        for step in steps:
            seconds(step, N)
        alone, both = [], []
        for _ in range(ROUNDS):
            alone.append(seconds(steps[0], N))
            both.append(max(threads.map(lambda step: seconds(step, N), steps)))
    tell(
        {
            "MLP step of a task on a GPU": statistics.median(alone),
            "MLP step of two tasks that share a GPU": statistics.median(both),
        }
    )


if __name__ == "__main__":
    main()
