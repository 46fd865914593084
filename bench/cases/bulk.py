"""100 MB over each transport: results that are kept, cold segments, and the delivery alone."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

import jflow as tf
from bench.cases.transports import TRANSPORTS, opened
from bench.echo_server import N_BYTES
from bench.timing import alternate, seconds, tell

N_KEPT = 8
"""Results that the caller keeps: more than a connection has segments."""
N_COLD = 5


def steps(stack: ExitStack, target: str, transport: str) -> dict[str, Callable[[], Any]]:
    """Steps with 100 MB, by the names of their figures."""
    big = np.ones(N_BYTES // 4, np.float32)
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, big.shape)
        near = tf.Variable(lambda: tf.numpy.zeros(big.shape), name="near")
        put = near.assign(x)
    with tf.device("/job:ps/task:0"):
        far = tf.Variable(lambda: tf.numpy.ones(big.shape), name="far").value()
    with tf.device("/job:worker/task:0"):
        element = far[N_BYTES // 8]
    session = stack.enter_context(tf.Session(target))
    session.run(tf.global_variables_initializer())
    kept: deque[np.ndarray] = deque(maxlen=N_KEPT)
    calls = {
        "feed 100 MB, kept in a variable": lambda: session.run(put.op, {x: big}),
        "fetch 100 MB, results kept": lambda: kept.append(session.run(near)),
        "delivery of 100 MB to another task": lambda: session.run(element),
    }
    return {f"{transport}: {name}": call for name, call in calls.items()}


def cold(target: str, transport: str) -> Callable[[], dict[str, float]]:
    """Measures the first 100 MB that a new session feeds, and that it fetches."""
    big = np.ones(N_BYTES // 4, np.float32)
    with tf.Graph().as_default() as graph, tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, big.shape)
        total = tf.numpy.sum(x)
        ones = tf.Variable(lambda: tf.numpy.ones(big.shape), name="cold")

    def measured() -> dict[str, float]:
        os.environ["JFLOW_TRANSPORT"] = transport
        with tf.Session(target, graph=graph) as session:
            session.run(ones.initializer)
            return {
                f"{transport}: first feed of 100 MB": seconds(lambda: session.run(total, {x: big})),
                f"{transport}: first fetch of 100 MB": seconds(lambda: session.run(ones)),
            }

    return measured


@contextmanager
def loopback() -> Iterator[Callable[[], None]]:
    """Takes 100 MB that another process sends over TCP, into memory that was used before."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        sender = subprocess.Popen([sys.executable, "-m", "bench.cases.bulk", str(port)])
        connection, _ = listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = memoryview(bytearray(N_BYTES))

        def receive() -> None:
            connection.sendall(b"x")
            filled = 0
            while filled < N_BYTES:
                filled += connection.recv_into(buffer[filled:])

        with connection:
            yield receive
        sender.wait()


def send(port: int) -> None:
    """Sends 100 MB for every byte that it gets, until the connection ends."""
    data = memoryview(np.ones(N_BYTES, np.uint8))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while connection.recv(1):
            connection.sendall(data)


def main() -> None:
    """One transport after the other in each turn."""
    with ExitStack() as stack:
        received = stack.enter_context(loopback())
        calls: dict[str, Callable[[], Any]] = {"loopback socket, 100 MB": received}
        colds = []
        for transport in TRANSPORTS:
            target = opened(stack, transport).target("worker", 0)
            stack.enter_context(tf.Graph().as_default())
            calls |= steps(stack, target, transport)
            colds.append(cold(target, transport))
        tell(alternate(calls, n=1, rounds=5))
        for measured in colds:
            measured()  # what is compiled once does not count
        taken: dict[str, list[float]] = {}
        for _ in range(N_COLD):
            for figures in [measured() for measured in colds]:
                for name, value in figures.items():
                    taken.setdefault(name, []).append(value)
        tell({name: statistics.median(values) for name, values in taken.items()})


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case [port]:
            send(int(port))
