"""The memory of a server for each session that is open and idle, over each transport."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

import jflow as tf
from bench import memory
from bench.timing import tell

TRANSPORTS = ("unix", "grpc")
N_BEFORE, N_IDLE, REST_S = 20, 200, 2.0


def taken(transport: str) -> float:
    """Bytes of one session, after a step that it has run."""
    os.environ["JFLOW_TRANSPORT"] = transport
    with ExitStack() as stack:
        cluster = stack.enter_context(tf.LocalCluster(ps=0, workers=1))
        stack.enter_context(tf.Graph().as_default())
        expression = tf.constant(1.0) * 3

        def opened() -> None:
            stack.enter_context(tf.Session(cluster.target())).run(expression)

        for _ in range(N_BEFORE):
            opened()
        time.sleep(REST_S)
        before = memory.resident(cluster.pid("worker", 0))
        for _ in range(N_IDLE):
            opened()
        time.sleep(REST_S)
        return (memory.resident(cluster.pid("worker", 0)) - before) / N_IDLE


if __name__ == "__main__":
    for transport in TRANSPORTS:
        tell({f"{transport}: memory of an idle connection": taken(transport)})
