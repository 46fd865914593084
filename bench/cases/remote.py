"""Calls to servers on the loopback interface, against raw `grpc.aio`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import grpc
import numpy as np

import jflow as tf
from bench import memory
from bench.echo_server import N_BYTES, OPTIONS
from bench.timing import alternate, tell

CHUNK = 1 << 20


@contextmanager
def echo_server() -> Iterator[str]:
    """The address of an echo server in a process of its own."""
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.echo_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield f"127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.communicate()


@contextmanager
def raw_channel() -> Iterator[grpc.Channel]:
    """A channel to an echo server in a process of its own."""
    with echo_server() as address, grpc.insecure_channel(address, OPTIONS) as made:
        yield made


def calls(cluster: tf.LocalCluster, raw: grpc.Channel) -> None:
    """Round trips."""
    expression = tf.constant(1.0) * 3
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, ())
        fed = x * 3 + 1
        near = tf.Variable(0.0, name="near")
        add_near = near.assign_add(1.0)
    with tf.device("/job:ps/task:0"):
        far = tf.Variable(1.0, name="far")
    with tf.device("/job:worker/task:0"):
        read_far = far * 2
    echo = raw.unary_unary("/raw/echo")
    outgoing: SimpleQueue[bytes] = SimpleQueue()
    chat = raw.stream_stream("/raw/chat")(iter(outgoing.get, b"end"))

    def talk() -> None:
        outgoing.put(b"x" * 100)
        next(chat)

    with tf.Session(cluster.target("worker", 0)) as session:
        session.run(tf.global_variables_initializer())
        times = alternate(
            {
                "raw unary echo": lambda: echo(b"x" * 100),
                "raw stream echo": talk,
                "remote constant": lambda: session.run(expression),
                "remote fed scalar": lambda: session.run(fed, {x: 1.0}),
                "remote assign_add": lambda: session.run(add_near),
                "remote scalar of another task": lambda: session.run(read_far),
            },
            n=200,
        )
    outgoing.put(b"end")
    tell(times)


def extra_memory(cluster: tf.LocalCluster) -> None:
    """Bytes that the server takes at most beyond what it had, while a variable is fetched."""
    pid = cluster.pid("worker", 0)
    with tf.device("/job:worker/task:0"):
        near = tf.Variable(lambda: tf.numpy.ones(N_BYTES // 4), name="big")
    with tf.Session(cluster.target("worker", 0)) as session:
        session.run(tf.global_variables_initializer())
        before = memory.resident(pid)
        memory.begin_peak(pid)
        for _ in range(5):
            session.run(near)
        tell({"memory to fetch 100 MB": memory.peak(pid) - before})


def tensors(cluster: tf.LocalCluster, raw: grpc.Channel) -> None:
    """100 MB to a server, back from it, and from one to another."""
    big = np.ones(N_BYTES // 4, np.float32)
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, big.shape)
        total = tf.numpy.sum(x)
        near = tf.Variable(lambda: tf.numpy.ones(big.shape), name="big")
    with tf.device("/job:ps/task:0"):
        far = tf.Variable(lambda: tf.numpy.ones(big.shape), name="far_big")
    with tf.device("/job:worker/task:0"):
        total_far = tf.numpy.sum(far)
    pull, push = raw.unary_stream("/raw/pull"), raw.stream_unary("/raw/push")
    raw_bytes = memoryview(big).cast("B")

    def chunks() -> Iterator[bytes]:
        for start in range(0, N_BYTES, CHUNK):
            yield bytes(raw_bytes[start : start + CHUNK])

    def pull_all() -> None:
        buffer = np.empty(N_BYTES, np.uint8)
        filled = 0
        for message in pull(b"%d" % CHUNK):
            buffer[filled : filled + len(message)] = np.frombuffer(message, np.uint8)
            filled += len(message)

    with tf.Session(cluster.target("worker", 0)) as session:
        session.run(tf.global_variables_initializer())
        times = alternate(
            {
                "raw 100 MB in": lambda: push(chunks()),
                "raw 100 MB out": pull_all,
                "feed 100 MB": lambda: session.run(total, {x: big}),
                "fetch 100 MB": lambda: session.run(near),
                "100 MB from task to task": lambda: session.run(total_far),
            },
            n=1,
            rounds=5,
        )
    tell(times)


if __name__ == "__main__":
    with tf.LocalCluster(ps=1, workers=1) as cluster, raw_channel() as raw:
        calls(cluster, raw)
        with tf.Graph().as_default():
            extra_memory(cluster)
        with tf.Graph().as_default():
            tensors(cluster, raw)
