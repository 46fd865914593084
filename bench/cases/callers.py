"""One to 200 threads that call one server: a small step over each transport."""

from __future__ import annotations

import gc
import os
from contextlib import ExitStack

import jflow as tf
from bench.load import closed_loop, offered
from bench.timing import seconds, tell

TRANSPORTS = ("unix", "grpc")
FEW, MANY = (1, 4, 16, 64), 200
SPAN_S, WARM = 4.0, 200


def measure(transport: str) -> dict[str, float]:
    """Figures of one transport; the loads come one after the other."""
    os.environ["JFLOW_TRANSPORT"] = transport
    figures: dict[str, float] = {}
    with ExitStack() as stack:
        cluster = stack.enter_context(tf.LocalCluster(ps=0, workers=1))
        stack.enter_context(tf.Graph().as_default())
        expression = tf.constant(1.0) * 3
        session = stack.enter_context(tf.Session(cluster.target()))

        def call() -> None:
            session.run(expression)

        seconds(call, WARM)
        gc.collect()
        gc.freeze()  # else a full collection in this process stops all threads for 0.1 s
        loads = {n: closed_loop(call, n, SPAN_S) for n in (*FEW, MANY)}
        for n, load in loads.items():
            figures[f"{transport}: time a call, {n} threads"] = load.seconds_a_call
        saturated = 1 / min(load.seconds_a_call for load in loads.values())
        half = offered(call, MANY, saturated / 2, SPAN_S)
    figures[f"{transport}: one caller, median"] = loads[1].quantile(0.5)
    figures[f"{transport}: {MANY} at half of saturation, 99 of 100"] = half.quantile(0.99)
    figures[f"{transport}: {MANY} at half of saturation, median"] = half.quantile(0.5)
    figures[f"{transport}: {MANY} callers in line, 99 of 100"] = loads[MANY].quantile(0.99)
    figures[f"{transport}: {MANY} calls at their throughput"] = MANY * loads[MANY].seconds_a_call
    return figures


if __name__ == "__main__":
    for transport in TRANSPORTS:
        tell(measure(transport))
