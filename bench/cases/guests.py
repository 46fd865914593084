"""A step of one session on a cluster that others have open sessions on, and on one without."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

import jflow as tf
from bench.timing import alternate, tell

N_IDLE, N_STEPS = 50, 2_000


def update(stack: ExitStack, cluster: tf.LocalCluster) -> Callable[[], object]:
    """An update of a variable, in a session of its own."""
    with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
        v = tf.Variable(0.0, name="v")
        grow = v.assign_add(1.0)
        session = stack.enter_context(tf.Session(cluster.target()))
    session.run(v.initializer)
    return lambda: session.run(grow)


def idle(stack: ExitStack, cluster: tf.LocalCluster) -> None:
    """Sessions that have run steps, keep state on the worker, and run no more."""
    for number in range(N_IDLE):
        with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
            v = tf.Variable(np.zeros(10_000, np.float32), name=f"idle_{number}")
            session = stack.enter_context(tf.Session(cluster.target()))
        session.run(v.initializer)
        session.run(v.assign_add(v))


def main() -> None:
    with ExitStack() as stack:
        alone, shared = (stack.enter_context(tf.LocalCluster(ps=0, workers=1)) for _ in range(2))
        idle(stack, shared)
        calls = {
            "update on a cluster of one session": update(stack, alone),
            f"update beside {N_IDLE} idle sessions": update(stack, shared),
        }
        tell(alternate(calls, N_STEPS))


if __name__ == "__main__":
    main()
