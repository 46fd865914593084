"""A client on one host of a cluster across three, which does what its standard input says.

    near   adds 1 to a variable on the parameter server
    far    reads it on the other worker
    again  opens a new session

Each is answered by the value, or by the class of the error.
"""

from __future__ import annotations

import sys

import jflow as tf
from jflow.errors import OpError


def main() -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster = resolver.cluster_spec()
    target = f"grpc://{cluster.task_address('worker', 0)}"
    with tf.device("/job:ps/task:0"):
        variable = tf.Variable(0.0, name="count")
        near = variable.assign_add(1.0)
    with tf.device("/job:worker/task:1"):
        far = variable.value() * 10.0
    session = tf.Session(target)
    session.run(variable.initializer)
    for line in sys.stdin:
        try:
            match line.strip():
                case "near":
                    said: object = float(session.run(near))
                case "far":
                    said = float(session.run(far))
                case _:
                    session = tf.Session(target)
                    said = "opened"
        except OpError as error:
            said = type(error).__name__
        print(said, flush=True)


if __name__ == "__main__":
    main()
