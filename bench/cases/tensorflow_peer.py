"""TensorFlow's sessions, for the same figures; run in an environment of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.tensorflow_servers import servers, tf
from bench.timing import alternate, tell

N_FLOATS = 25_000_000


def calls(session: Any, where: str, n: int) -> None:
    """Round trips of one session."""
    constant = tf.constant(1.0) * 3
    x = tf.placeholder(tf.float32, [])
    fed = x * 3 + 1
    variable = tf.Variable(0.0, name=where)
    add = tf.assign_add(variable, 1.0)
    session.run(variable.initializer)
    tell(
        alternate(
            {
                f"TensorFlow {where} constant": lambda: session.run(constant),
                f"TensorFlow {where} fed scalar": lambda: session.run(fed, {x: 1.0}),
                f"TensorFlow {where} assign_add": lambda: session.run(add),
            },
            n,
            rounds=5,
        )
    )


def scatter(n_rows: int) -> None:
    """Adding 256 rows into a table of 16 columns."""
    random = np.random.default_rng(0)
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.Variable(tf.zeros([n_rows, 16]))
        at, rows = tf.placeholder(tf.int32, [256]), tf.placeholder(tf.float32, [256, 16])
        added = tf.group(tf.scatter_add(table, at, rows))
        feeds = {
            at: random.integers(0, n_rows, 256).astype(np.int32),
            rows: random.normal(size=(256, 16)).astype(np.float32),
        }
        session.run(table.initializer)
        name = f"TensorFlow scatter_add into {n_rows}"
        tell(alternate({name: lambda: session.run(added, feeds)}, n=50, rounds=5))


def tensors(session: Any) -> None:
    """100 MB to a server, back from it, and from one to another."""
    big = np.ones(N_FLOATS, np.float32)
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, [N_FLOATS])
        total = tf.reduce_sum(x)
        near = tf.Variable(tf.ones([N_FLOATS]), name="near")
    with tf.device("/job:ps/task:0"):
        far = tf.Variable(tf.ones([N_FLOATS]), name="far")
        scalar = tf.Variable(1.0, name="scalar")
    near_value = near.value()
    with tf.device("/job:worker/task:0"):
        total_far, twice, half = tf.reduce_sum(far), scalar * 2, scalar * 0.5
    with tf.device("/job:ps/task:0"):
        halved = tf.group(scalar.assign(half))
    session.run([near.initializer, far.initializer, scalar.initializer])
    tell(
        alternate(
            {
                "TensorFlow feed 100 MB": lambda: session.run(total, {x: big}),
                "TensorFlow fetch 100 MB": lambda: session.run(near_value),
                "TensorFlow 100 MB from task to task": lambda: session.run(total_far),
            },
            n=1,
            rounds=5,
        )
    )
    name = "TensorFlow remote scalar of another task"
    tell(alternate({name: lambda: session.run(twice)}, n=200, rounds=5))
    name = "TensorFlow remote scalar to a worker and back"
    tell(alternate({name: lambda: session.run(halved)}, n=200, rounds=5))


if __name__ == "__main__":
    with tf.Session() as session:
        calls(session, "local", 1000)
    scatter(10_000)
    scatter(5_000_000)
    with servers() as target:
        with tf.device("/job:worker/task:0"), tf.Session(target) as session:
            calls(session, "remote", 300)
        with tf.Graph().as_default(), tf.Session(target) as session:
            tensors(session)
