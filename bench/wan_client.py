"""The client of `bench.cases.wan`: what is timed on the near one of two hosts.

`python -m bench.wan_client bulk MEGABYTES CONDITION PORT` or `steps PORT`. The cluster is that of
`TF_CONFIG`, the port that of `bench.plain_socket` beside the parameter server, which is far.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np

import jflow as tf
from bench.plain_socket import PlainSocket
from bench.timing import alternate, tell

NAME = os.environ["BENCH_NAME"]
"""What figures begin with."""
BESIDE = f"plain socket beside {NAME}"
N_STEPS = 64
Timed = dict[str, Callable[[], Any]]
FAR, NEAR = "/job:ps/task:0", "/job:worker/task:0"


def bulk(stack: ExitStack, targets: dict[str, str], n_bytes: int, what: str) -> Timed:
    """Arrays between the client and a far task, and between a near and a far one."""
    ones = np.ones(n_bytes // 4, np.float32)
    stack.enter_context(tf.Graph().as_default())
    kept, ends = {}, {}
    for device, name in ((FAR, "far"), (NEAR, "near")):
        with tf.device(device):
            kept[device] = tf.Variable(lambda: tf.numpy.ones(ones.shape), name=name)
    for device, other in ((FAR, NEAR), (NEAR, FAR)):
        with tf.device(device):
            ends[device] = kept[other].value()[ones.size // 2]
    with tf.device(FAR):
        x = tf.placeholder(tf.float32, ones.shape)
        last = x[ones.size - 1]
    far, near = (stack.enter_context(tf.Session(targets[device])) for device in (FAR, NEAR))
    near.run(tf.global_variables_initializer())
    return {
        f"{NAME}: feed far away, {what}": lambda: far.run(last, {x: ones}),
        f"{NAME}: fetch from far away, {what}": lambda: far.run(kept[FAR]),
        f"{NAME}: to a far task, {what}": lambda: near.run(ends[FAR]),
        f"{NAME}: from a far task, {what}": lambda: near.run(ends[NEAR]),
    }


def plain(socket: PlainSocket, n_bytes: int, what: str) -> Timed:
    """The same by a plain socket."""
    data = memoryview(bytearray(b"x" * n_bytes))
    return {
        f"{BESIDE}, there, {what}": lambda: socket.there(data),
        f"{BESIDE}, back, {what}": lambda: socket.back(data),
    }


def small_steps(stack: ExitStack, targets: dict[str, str]) -> Timed:
    """Steps that do not depend on each other: one, many at once, and one after another."""
    stack.enter_context(tf.Graph().as_default())
    with tf.device(FAR):
        x = tf.placeholder(tf.float32, ())
        fed = x * 3 + 1
        variables = [tf.Variable(0.0, name=f"v{i}") for i in range(N_STEPS)]
        updates = [variable.assign_add(1.0) for variable in variables]
    with tf.device(NEAR):
        read = variables[0].value() * 2
    far, near = (stack.enter_context(tf.Session(targets[device])) for device in (FAR, NEAR))
    near.run(tf.global_variables_initializer())
    pool = stack.enter_context(ThreadPoolExecutor(N_STEPS))

    def fed_at_once() -> None:
        futures = [far.run_async(fed, {x: float(i)}) for i in range(N_STEPS)]
        assert [future.result() for future in futures] == [3.0 * i + 1 for i in range(N_STEPS)]

    def updated_at_once() -> None:
        for future in [far.run_async(update) for update in updates]:
            future.result()

    def read_at_once() -> None:
        for future in [near.run_async(read) for _ in range(N_STEPS)]:
            future.result()

    return {
        f"{NAME}: a step far away": lambda: far.run(fed, {x: 1.0}),
        f"{NAME}: {N_STEPS} steps far away at once": fed_at_once,
        f"{NAME}: {N_STEPS} updates far away at once": updated_at_once,
        f"{NAME}: {N_STEPS} steps far away by threads": lambda: list(
            pool.map(lambda i: far.run(fed, {x: float(i)}), range(N_STEPS))
        ),
        f"{NAME}: {N_STEPS} reads by a near task at once": read_at_once,
        f"{NAME}: {N_STEPS} steps, one after another": lambda: [
            far.run(fed, {x: 1.0}) for _ in range(N_STEPS)
        ],
    }


def closures(stack: ExitStack) -> Timed:
    """Closures on a near worker that write a variable far away."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.ClusterCoordinator(strategy)
    stack.callback(coordinator.close)
    with strategy.scope():
        count = tf.Variable(0.0, name="count")

    @tf.function
    def counted() -> None:
        count.assign_add(1.0)

    def scheduled() -> None:
        for _ in range(N_STEPS):
            coordinator.schedule(counted)
        coordinator.join()

    return {f"{NAME}: {N_STEPS} closures at once": scheduled}


def main(words: list[str]) -> None:
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
    addresses = {FAR: cluster.task_address("ps", 0), NEAR: cluster.task_address("worker", 0)}
    targets = {device: f"grpc://{address}" for device, address in addresses.items()}
    with ExitStack() as stack:
        host = addresses[FAR].partition(":")[0]
        socket = stack.enter_context(PlainSocket(host, int(words[-1])))
        match words:
            case ["bulk", megabytes, condition, _]:
                n_bytes, what = int(megabytes) * 10**6, f"{megabytes} MB{condition}"
                calls = bulk(stack, targets, n_bytes, what) | plain(socket, n_bytes, what)
                tell(alternate(calls, n=1, rounds=7 if n_bytes < 10**8 else 3))
            case ["steps", _]:
                calls = small_steps(stack, targets) | closures(stack)
                calls[f"{BESIDE}, round trip"] = socket.round_trip
                tell(alternate(calls, n=1, rounds=5))
            case _:
                sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
