"""Tensors of 8 B to 1 GB into a task and out of it, over each transport."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

import jflow as tf
from bench.timing import alternate, tell

TRANSPORTS = ("unix", "grpc")
SIZES = {
    "8 B": (8, 100),
    "1 kB": (1_000, 100),
    "64 kB": (64_000, 100),
    "1 MB": (1_000_000, 20),
    "10 MB": (10_000_000, 4),
    "1 GB": (1_000_000_000, 1),
}
"""Bytes of each, and how many calls are timed in a row."""


def steps(stack: ExitStack, target: str, transport: str, size: str) -> dict[str, Callable[[], Any]]:
    """A step that is fed, and one that fetches."""
    os.environ["JFLOW_TRANSPORT"] = transport
    array = np.ones(SIZES[size][0] // 4, np.float32)
    stack.enter_context(tf.Graph().as_default())
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, array.shape)
        first = x[0]
        ones = tf.Variable(lambda: tf.numpy.ones(array.shape), name=f"ones_{len(array)}")
    session = stack.enter_context(tf.Session(target))
    session.run(ones.initializer)
    return {
        f"{transport}: feed {size}": lambda: session.run(first, {x: array}),
        f"{transport}: fetch {size}": lambda: session.run(ones),
    }


def main() -> None:
    """A size after the other; the transports take turns."""
    with ExitStack() as stack:
        targets = {}
        for transport in TRANSPORTS:
            os.environ["JFLOW_TRANSPORT"] = transport
            cluster = stack.enter_context(tf.LocalCluster(ps=0, workers=1))
            targets[transport] = cluster.target("worker", 0)
        for size, (_, n) in SIZES.items():
            with ExitStack() as sessions:
                calls: dict[str, Callable[[], Any]] = {}
                for transport, target in targets.items():
                    calls |= steps(sessions, target, transport, size)
                tell(alternate(calls, n, rounds=5 if n > 1 else 3))


if __name__ == "__main__":
    main()
