"""A step in which one scalar crosses between two tasks, and one in which 1,000 do."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import jflow as tf
from bench.timing import alternate, tell

TRANSPORTS = ("unix", "grpc")
N_SCALARS = 1000


def crossing(n: int) -> Any:
    """The sum, on the worker, of `n` scalars of the parameter server."""
    with tf.device("/job:ps/task:0"):
        source = tf.Variable(1.0, name=f"source{n}")
        scalars = [source * float(number + 1) for number in range(n)]
    with tf.device("/job:worker/task:0"):
        return tf.numpy.sum(tf.numpy.stack(scalars))


def steps(stack: ExitStack, transport: str) -> dict[str, Callable[[], Any]]:
    """Both steps over one transport, by the names of their figures."""
    os.environ["JFLOW_TRANSPORT"] = transport
    cluster = stack.enter_context(tf.LocalCluster(ps=1, workers=1))
    stack.enter_context(tf.Graph().as_default())
    one, many = crossing(1), crossing(N_SCALARS)
    session = stack.enter_context(tf.Session(cluster.target("worker", 0)))
    session.run(tf.global_variables_initializer())
    assert session.run([one, many]) == [1.0, N_SCALARS * (N_SCALARS + 1) / 2]
    return {
        f"{transport}: one scalar crosses": session.make_callable(one),
        f"{transport}: {N_SCALARS} scalars cross": session.make_callable(many),
    }


if __name__ == "__main__":
    with ExitStack() as stack:
        calls: dict[str, Callable[[], Any]] = {}
        for transport in TRANSPORTS:
            calls |= steps(stack, transport)
        tell(alternate(calls, n=20))
