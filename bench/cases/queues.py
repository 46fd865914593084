"""Queues in this process and on a server, against a raw relay.

With a target and a bound in bytes it is a producer, which goes on until it is killed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import numpy as np

import jflow as tf
from bench import memory
from bench.echo_server import OPTIONS
from bench.relay import CAPACITY, ITEM
from bench.timing import alternate, drain, tell

N_BYTES = 100_000_000
N_ROUNDS = 5
BOUNDS_MB = (64, 256)
UNBOUNDED = 1 << 40
SLOWER, WATCHED_S = 10, 6.0


def scalar(session: tf.Session, where: str, n: int) -> None:
    """A scalar into a queue and out of it, a call for each."""
    queue = tf.FIFOQueue(1000, [tf.float32], [()], shared_name=where)
    put, take = queue.enqueue(1.0), queue.dequeue()

    def there_and_back() -> None:
        session.run(put)
        session.run(take)

    tell(alternate({f"{where} enqueue and dequeue": there_and_back}, n))


def tensors(session: tf.Session) -> None:
    """100 MB into a queue as a hundred elements and out of it, against feeding and fetching."""
    big = np.ones((100, N_BYTES // 400), np.float32)
    queue = tf.FIFOQueue(100, [tf.float32], [big.shape[1:]])
    x = tf.placeholder(tf.float32, big.shape)
    put, take = queue.enqueue_many(x), queue.dequeue_many(len(big))
    total = tf.numpy.sum(x)
    variable = tf.Variable(lambda: tf.numpy.ones(big.shape), name="big")
    session.run(variable.initializer)

    def through() -> None:
        session.run(put, {x: big})
        session.run(take)

    def plain() -> None:
        session.run(total, {x: big})
        session.run(variable)

    calls = {"100 MB through a queue": through, "100 MB fed and fetched": plain}
    tell(alternate(calls, n=1, rounds=5))


def items_queue(bound: int) -> tf.FIFOQueue:
    """The queue of the connection that producer and consumer share."""
    return tf.FIFOQueue(
        CAPACITY if bound == UNBOUNDED else -1,
        [tf.float32],
        [ITEM.shape],
        shared_name=f"items within {bound}",
        capacity_bytes=bound,
    )


def produce(target: str, bound: int) -> None:
    """Puts items without end."""
    with tf.connect(target), items_queue(bound).writer() as writer:
        while True:
            writer.put(ITEM)


@contextmanager
def producer(target: str, bound: int) -> Iterator[None]:
    """One in a process of its own."""
    command = [sys.executable, "-m", "bench.cases.queues", target, str(bound)]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.kill()


@contextmanager
def relayed() -> Iterator[Iterator[np.ndarray]]:
    """Items from a producer through the raw relay."""
    command, pipe = [sys.executable, "-m", "bench.relay"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as relay:
        port = relay.stdout.readline().strip()
        with (
            subprocess.Popen([*command, port], stdin=pipe) as filling,
            grpc.insecure_channel(f"127.0.0.1:{port}", OPTIONS) as channel,
        ):
            messages = channel.unary_stream("/relay/take")(b"")
            arrays = (np.frombuffer(message, ITEM.dtype) for message in messages)
            yield (item for array in arrays for item in array.reshape(-1, *ITEM.shape))
            messages.cancel()
            filling.communicate()


def through_server(stack: ExitStack, transport: str) -> Iterator[Any]:
    """Items from a producer through a server of its own; all of them use a transport."""
    os.environ["JFLOW_TRANSPORT"] = transport
    cluster = stack.enter_context(tf.LocalCluster(ps=0, workers=1))
    target = cluster.target("worker", 0)
    stack.enter_context(tf.connect(target))
    stack.enter_context(producer(target, UNBOUNDED))
    reader: Iterator[Any] = stack.enter_context(items_queue(UNBOUNDED).reader())
    return reader


def items() -> float:
    """Items from a producer through a server to this process; gives the seconds of one."""
    chosen = os.environ.get("JFLOW_TRANSPORT", "auto")
    with ExitStack() as stack:
        streams = {
            "item through a server": through_server(stack, chosen),
            "grpc: item through a server": through_server(stack, "grpc"),
            "item through a raw relay": stack.enter_context(relayed()),
        }
        os.environ["JFLOW_TRANSPORT"] = chosen
        taken: dict[str, list[float]] = {name: [] for name in streams}
        for _ in range(N_ROUNDS):
            for name, stream in streams.items():
                taken[name].append(drain(stream))
    times = {name: statistics.median(values) for name, values in taken.items()}
    tell(times)
    return times["item through a server"]


def bounded(cluster: tf.LocalCluster, bound_mb: int, item_s: float) -> None:
    """Bytes that a server takes at most while its queue is filled ten times faster than emptied."""
    target, pid = cluster.target("worker", 0), cluster.pid("worker", 0)
    bound = bound_mb * 1_000_000
    with tf.connect(target):
        queue = items_queue(bound)
        queue.put(ITEM)
        queue.get()  # what every first call leaves behind does not count
        before = memory.resident(pid)
        memory.begin_peak(pid)
        with producer(target, bound):
            ends = time.perf_counter() + WATCHED_S
            while time.perf_counter() < ends:
                queue.get()
                time.sleep(SLOWER * item_s)
            taken = memory.peak(pid) - before
    tell({f"memory of a server with a queue of {bound_mb} MB": taken})


def main() -> None:
    """Every case, each on servers of its own where memory counts."""
    with tf.Session() as session:
        scalar(session, "local", 500)
    with tf.LocalCluster(ps=0, workers=1) as cluster:
        target = cluster.target("worker", 0)
        with tf.Graph().as_default(), tf.Session(target) as session:
            scalar(session, "remote", 200)
        with tf.Graph().as_default(), tf.Session(target) as session:
            tensors(session)
    item_s = items()
    for bound_mb in BOUNDS_MB:
        with tf.LocalCluster(ps=0, workers=1) as cluster:
            bounded(cluster, bound_mb, item_s)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case [target, bound]:
            produce(target, int(bound))
