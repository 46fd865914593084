"""Bob trains: a coordinator counts, exactly once, in a variable of each parameter server.

`python -m tests.gameday.programs.bob SETTINGS`, with the settings as JSON: the cluster, the path of
the checkpoint, and how many closures a round has. Each round ends with a save, so that the program
goes on where it was when it is started again. It ends after the round in which its input ends.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import Any

import numpy as np

import jflow as tf
from tests.gameday.programs.told import PAUSE_S, is_over, tell


def main(settings: dict[str, Any]) -> None:
    n_closures = settings["n_closures"]
    strategy = tf.distribute.ParameterServerStrategy(tf.train.ClusterSpec(settings["cluster"]))
    # With the role `use` one claims no name.
    coordinator = tf.ClusterCoordinator(strategy, name=None, checkpoint=settings["checkpoint"])
    with tf.container("bob/train"), strategy.scope():
        counts = [
            tf.Variable(np.int32(0), name=f"count_{i}") for i in range(len(strategy.ps_tasks))
        ]
        total = tf.Variable(np.int32(0), name="total")

    @tf.function
    def step(number: Any) -> None:
        for one in counts:
            one.assign_add(1)
        total.assign_add(number)

    @tf.function
    def read() -> Any:
        return [one.read_value() for one in (*counts, total)]

    def values() -> list[int]:
        return [int(one) for one in coordinator.fetch(coordinator.schedule(read))]

    about = coordinator.restore()
    start = 0 if about is None else int(about["round"])
    tell(started=start, values=values())
    for number in itertools.count(start):
        began = time.monotonic()
        for i in range(n_closures):
            closure = np.int32(number * n_closures + i)
            coordinator.schedule(step, (closure,), effects="exactly_once")
            if i == n_closures // 2:
                tell(in_the_middle_of=number)
        coordinator.join()
        coordinator.save({"round": str(number + 1)})
        n_rerun = coordinator.metrics().put_back
        seconds = time.monotonic() - began
        tell(rounds=number + 1, values=values(), n_rerun=n_rerun, seconds=seconds)
        if is_over(PAUSE_S):
            break
    tell(ended=number + 1, values=values())
    coordinator.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
