"""What a tensor of 4 GB costs both ends beyond itself when it crosses between two tasks."""

from __future__ import annotations

import jflow as tf
from bench import memory
from bench.timing import tell

N_FLOATS = 1 << 30


def main() -> None:
    """The largest memory of both tasks in a step whose consumer takes one element."""
    with (
        tf.LocalCluster(ps=1, workers=1) as cluster,
        tf.Session(cluster.target("worker", 0)) as session,
    ):
        with tf.device("/job:ps/task:0"):
            far = tf.Variable(lambda: tf.numpy.ones(N_FLOATS), name="far")
            small = tf.Variable(lambda: tf.numpy.ones(8), name="small")
        with tf.device("/job:worker/task:0"):
            element, of_small = far.value()[N_FLOATS // 2], small.value()[4]
        session.run(tf.global_variables_initializer())
        session.run(of_small)  # what every first step leaves behind does not count
        pids = {job: cluster.pid(job, 0) for job in ("ps", "worker")}
        before = {job: memory.resident(pid) for job, pid in pids.items()}
        for pid in pids.values():
            memory.begin_peak(pid)
        assert session.run(element) == 1.0
        extra = {job: memory.peak(pid) - before[job] for job, pid in pids.items()}
    tell(
        {
            "memory to send 4 GB, beyond the tensor": extra["ps"],
            "memory to receive 4 GB, beyond the tensor": extra["worker"] - 4 * N_FLOATS,
        }
    )


if __name__ == "__main__":
    main()
