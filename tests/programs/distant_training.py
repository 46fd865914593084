"""A training whose parameter server is on another host, a number of steps for each line of input.

The near worker reads a variable and computes a change, which the parameter server applies: five
times the value and one, in 32 bits, so that each number of steps has a value of its own. The answer
is how many steps have run and the value, or the class of an error and how long the step took, in
seconds.
"""

from __future__ import annotations

import sys
import time

import jflow as tf
from jflow.errors import OpError


def main() -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    target = f"grpc://{resolver.cluster_spec().task_address('worker', 0)}"
    with tf.device("/job:ps/task:0"):
        variable = tf.Variable(0, name="value")
        n_steps = tf.Variable(0, name="n_steps")
        counted = n_steps.assign_add(1)
    with tf.device("/job:worker/task:0"):
        change = 4 * variable.value() + 1
    with tf.device("/job:ps/task:0"):
        step = tf.group(variable.assign_add(change), counted)
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
            print(int(n), int(value), flush=True)
        except OpError as error:
            print(type(error).__name__, time.monotonic() - begun, flush=True)


if __name__ == "__main__":
    main()
