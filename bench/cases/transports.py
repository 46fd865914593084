"""Steps over each transport that carries messages, on one machine, in turns, beside raw gRPC."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import jflow as tf
from bench.cases.remote import raw_channel
from bench.echo_server import N_BYTES
from bench.timing import alternate, tell
from jflow.base.cluster import ClusterSpec
from jflow.net.wire.authority import write_certificates
from jflow.testing import start_servers

TRANSPORTS = ("unix", "grpc")
"""What messages go over between processes of one machine, and what they could go over."""
ALL_TRANSPORTS = ("inproc", *TRANSPORTS, "tcp", "tcp with TLS", "grpc with TLS")
_WITH_TLS = " with TLS"


def opened(stack: ExitStack, transport: str) -> tf.LocalCluster:
    """A cluster whose tasks, and the sessions that are opened next, use a transport."""
    os.environ["JFLOW_TRANSPORT"] = transport.removesuffix(_WITH_TLS)
    os.environ.pop("JFLOW_TLS_DIR", None)
    if transport.endswith(_WITH_TLS):
        made = Path(stack.enter_context(TemporaryDirectory()))
        made.chmod(0o700)
        here = ["127.0.0.1:0"]
        write_certificates(made, ClusterSpec({"ps": here, "worker": here}), days=1)
        os.environ["JFLOW_TLS_DIR"] = str(made)
    return stack.enter_context(tf.LocalCluster(ps=1, workers=1))


def opened_here(stack: ExitStack, transport: str) -> str:
    """A cluster whose tasks are in this process; the target of its worker.

    Args:
      stack: ends it.
      transport: of the session that is opened next on that; "inproc", or another one.
    """
    os.environ["JFLOW_TRANSPORT"] = "auto" if transport == "inproc" else transport
    os.environ.pop("JFLOW_TLS_DIR", None)
    servers = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
    return servers[-1].target


def steps(stack: ExitStack, transport: str) -> tuple[dict[str, Callable[[], Any]], ...]:
    """Small and large steps, by the names of their figures."""
    if transport == "inproc":
        target = opened_here(stack, transport)
    else:
        target = opened(stack, transport).target("worker", 0)
    return steps_on(stack, target, transport)


def steps_on(
    stack: ExitStack, target: str, transport: str
) -> tuple[dict[str, Callable[[], Any]], ...]:
    """As `steps`, on a worker beside a parameter server."""
    stack.enter_context(tf.Graph().as_default())
    expression = tf.constant(1.0) * 3
    big = np.ones(N_BYTES // 4, np.float32)
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, ())
        fed = x * 3 + 1
        add_near = tf.Variable(0.0, name="near").assign_add(1.0)
        queue = tf.FIFOQueue(10, [tf.float32], shapes=[()])
        put, take = queue.enqueue(1.0), queue.dequeue()
        large = tf.placeholder(tf.float32, big.shape)
        total = tf.numpy.sum(large)
        near_big = tf.Variable(lambda: tf.numpy.ones(big.shape), name="big")
    with tf.device("/job:ps/task:0"):
        far = tf.Variable(1.0, name="far")
        far_big = tf.Variable(lambda: tf.numpy.ones(big.shape), name="far_big")
    with tf.device("/job:worker/task:0"):
        read_far, total_far = far * 2, tf.numpy.sum(far_big)
        half = far * 0.5
    with tf.device("/job:ps/task:0"):
        halved = tf.group(far.assign(half))
    session = stack.enter_context(tf.Session(target))
    session.run(tf.global_variables_initializer())
    used = {device.transport for device in session.list_devices()}
    wanted = transport.removesuffix(_WITH_TLS)
    expected = {wanted, "unix"} if wanted == "inproc" else {wanted}
    assert used == expected, f"expected {expected}, got {used}"

    def there_and_back() -> None:
        session.run(put)
        session.run(take)

    small = {
        "constant": lambda: session.run(expression),
        "fed scalar": lambda: session.run(fed, {x: 1.0}),
        "assign_add": lambda: session.run(add_near),
        "enqueue and dequeue": there_and_back,
        "scalar of another task": lambda: session.run(read_far),
        "scalar to a worker and back": lambda: session.run(halved),
    }
    bulk = {
        "feed 100 MB": lambda: session.run(total, {large: big}),
        "fetch 100 MB": lambda: session.run(near_big),
        "100 MB from task to task": lambda: session.run(total_far),
    }
    return _named(transport, small), _named(transport, bulk)


def _named(transport: str, calls: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    return {f"{transport}: {name}": call for name, call in calls.items()}


if __name__ == "__main__":
    with ExitStack() as stack:
        echo = stack.enter_context(raw_channel()).unary_unary("/raw/echo")
        small: dict[str, Callable[[], Any]] = {"raw unary echo": lambda: echo(b"x" * 100)}
        bulk: dict[str, Callable[[], Any]] = {}
        for transport in ALL_TRANSPORTS:
            of_small, of_bulk = steps(stack, transport)
            small |= of_small
            bulk |= of_bulk
        tell(alternate(small, n=100))
        tell(alternate(bulk, n=1, rounds=5))
