"""A training whose parameter server is on another host, a number of steps for each line of input.

Each step moves a variable half of the way to its goal, which is exact. The answer is how many steps
have run and the value, or the class of an error and how long the step took, in seconds.
"""

from __future__ import annotations

import sys
import time

import jflow as tf
from jflow.errors import OpError

GOAL = 1.0


def main() -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    target = f"grpc://{resolver.cluster_spec().task_address('worker', 0)}"
    with tf.device("/job:ps/task:0"):
        variable = tf.Variable(0.0, name="value")
        n_steps = tf.Variable(0, name="n_steps")
        counted = n_steps.assign_add(1)
    with tf.device("/job:worker/task:0"):
        change = 0.5 * (variable.value() - GOAL)
    with tf.device("/job:ps/task:0"):
        step = tf.group(variable.assign_sub(change), counted)
    session = tf.Session(target)
    session.run(tf.global_variables_initializer())
    print("initialized", flush=True)
    for line in sys.stdin:
        begun = time.monotonic()
        try:
            for _ in range(int(line)):
                begun = time.monotonic()
                session.run(step)
            n, value = session.run([n_steps, variable])
            print(int(n), float(value), flush=True)
        except OpError as error:
            print(type(error).__name__, time.monotonic() - begun, flush=True)


if __name__ == "__main__":
    main()
