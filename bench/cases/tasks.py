"""A step over many tasks, a process each, that takes a scalar from every one of them."""

from __future__ import annotations

import numpy as np

import jflow as tf
from bench.cases.remote import raw_channel
from bench.timing import alternate, tell

N_TASKS = (8, 16, 32, 64)


def main() -> None:
    """Times the steps in turns, and fits a line: what each further task adds."""
    with (
        tf.LocalCluster(ps=0, workers=N_TASKS[-1], timeout=240.0) as cluster,
        raw_channel() as channel,
        tf.Session(cluster.target("worker", 0)) as session,
    ):
        echo = channel.unary_unary("/raw/echo")
        values = []
        for index in range(N_TASKS[-1]):
            with tf.device(f"/job:worker/task:{index}"):
                values.append(tf.constant(float(index)) * 3)
        runs = {n: session.make_callable(values[:n]) for n in N_TASKS}
        calls = {f"step over {n} tasks": run for n, run in runs.items()}
        found = session.run(values)
        assert found == [3.0 * index for index in range(N_TASKS[-1])], found
        times = alternate({**calls, "raw unary echo": lambda: echo(b"x" * 100)}, n=20)
    of_step = [times[name] for name in calls]
    first, last = N_TASKS[0], N_TASKS[-1]
    line = of_step[0] + (of_step[2] - of_step[0]) / (N_TASKS[2] - first) * (last - first)
    tell(times)
    tell({"each further task of a step": float(np.polyfit(N_TASKS, of_step, 1)[0])})
    tell({"line through the steps over 8 and 32 tasks, at 64": line})


if __name__ == "__main__":
    main()
