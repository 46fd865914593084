"""A program that coordinates closures which count; `tests.chaos.coordinator` kills it and others.

`python -m tests.chaos.coordinated SETTINGS`, with the settings as JSON. It works in rounds: it
schedules closures, joins, and says what the counters were before and after; after some rounds it
saves. It ends when its input does, with code 0; with code 3 if another coordinator has taken over.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import sys
import time
from typing import Any

import numpy as np

import jflow as tf
from jflow.errors import FencedError
from jflow.training.coordinator import ClusterCoordinator
from jflow.training.parameter_servers import ParameterServerStrategy

FENCED = 3


def tell(**message: Any) -> None:
    """Prints a line for the one that watches."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def is_over() -> bool:
    """Whether the input has ended."""
    return bool(select.select([sys.stdin], [], [], 0)[0]) and not sys.stdin.readline()


def work(settings: dict[str, Any]) -> None:
    """Works until the input ends.

    Args:
      settings: the cluster, the path of the checkpoint, how many closures a round has, the effects
        with which they are scheduled, and after how many rounds it saves.
    """
    strategy = ParameterServerStrategy(tf.train.ClusterSpec(settings["cluster"]))
    coordinator = ClusterCoordinator(
        strategy, on_ps_failure="restore", checkpoint=settings["checkpoint"]
    )
    with strategy.scope():
        counts = [
            tf.Variable(np.int64(0), name=f"count_{i}") for i in range(len(strategy.ps_tasks))
        ]

    @tf.function
    def count(n: Any) -> Any:
        square = n * n  # what several parameter servers need is computed on the worker
        for one in counts:
            one.assign_add(square)

    @tf.function
    def read() -> Any:
        return [one.read_value() for one in counts]

    def values() -> list[int]:
        # On a worker, so that the loss of a parameter server is a pause.
        return [int(value) for value in coordinator.fetch(coordinator.schedule(read))]

    restored = coordinator.restore() is not None
    tell(started=values(), restored=restored)
    for number in itertools.count():
        if is_over():
            return
        n_restored, begun = coordinator.n_restored, time.monotonic()
        before = values()
        for _ in range(settings["n_closures"]):
            coordinator.schedule(count, (np.int64(1),), effects=settings["effects"])
        tell(scheduled=settings["n_closures"])
        coordinator.join()
        after, ended = values(), time.monotonic()
        is_whole = coordinator.n_restored == n_restored
        if number % settings["save_every"] == 0:
            coordinator.save()
            is_whole = is_whole and coordinator.n_restored == n_restored
        times = {"begun": begun, "ended": ended}
        n_rerun = coordinator.metrics().put_back
        tell(before=before, after=after, is_whole=is_whole, n_rerun=n_rerun, **times)


def main() -> None:
    try:
        work(json.loads(sys.argv[1]))
    except FencedError as error:
        tell(fenced=error.message)
        sys.stdout.flush()
        os._exit(FENCED)
    os._exit(0)


if __name__ == "__main__":
    main()
