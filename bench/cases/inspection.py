"""What it takes to list the variables of 64 tasks, beside those of one of them."""

from __future__ import annotations

import jflow as tf
from bench.timing import alternate, tell
from jflow.base.cluster import Task
from jflow.cli.watcher import Watcher

N_TASKS, N_VARIABLES = 64, 10_000
SECONDS = 120.0


def main() -> None:
    with tf.LocalCluster(ps=N_TASKS - 1, workers=1, timeout=SECONDS * 2) as cluster:
        fill(cluster)
        with Watcher([cluster.target()], SECONDS) as watcher:
            seen = watcher.inspect(["variables"])
            assert sum(len(one.items("variables")) for one in seen) == N_VARIABLES
            one = [Task("ps", 0)]
            calls = {
                "all": lambda: watcher.inspect(["variables"]),
                "one": lambda: watcher.inspect(["variables"], one),
                "status": lambda: watcher.inspect(("devices", "sessions", "steps")),
            }
            taken = alternate(calls, n=1, rounds=15)
    tell(
        {
            "list 10000 variables of 64 tasks": taken["all"],
            "list the variables of one of 64 tasks": taken["one"],
            "status of 64 tasks": taken["status"],
        }
    )


def fill(cluster: tf.LocalCluster) -> None:
    """Puts variables on all tasks, about as many on each."""
    tasks = cluster.tasks
    with tf.Graph().as_default():
        made = []
        for number in range(N_VARIABLES):
            with tf.device(str(tasks[number % N_TASKS])):
                made.append(tf.Variable(float(number), name=f"layer_{number // 64}/weights"))
        with tf.Session(cluster.target()) as session:
            session.run([variable.initializer for variable in made])


if __name__ == "__main__":
    main()
