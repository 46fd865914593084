"""Many threads at once, and Ctrl-C in a long step."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from jflow.compiler.graph import owners
from jflow.testing import PATIENCE_S
from tests.clusters import Backend

N_THREADS = 100
ROOT = Path(__file__).parents[3]


def _at_once(fun: Any) -> list[Any]:
    """What a function gives for 0, 1, …, called by as many threads that start together."""
    gate = threading.Barrier(N_THREADS)

    def call(number: int) -> Any:
        gate.wait(PATIENCE_S)
        return fun(number)

    with ThreadPoolExecutor(N_THREADS) as threads:
        return list(threads.map(call, range(N_THREADS)))


def test_a_hundred_threads_call_one_function(
    backend: Backend, connection: tf.function.Connection
) -> None:
    with tf.device(backend.devices[0]):
        total = tf.Variable(jnp.zeros(2), name="total")
    with tf.device(backend.devices[-1]):
        count = tf.Variable(0, name="count")

    @tf.function
    def add(x: Any) -> Any:
        # Two signatures, so that threads also meet while the function is traced.
        y = jax.jit(jnp.sum)(x)
        return total.assign_add(jnp.stack([y, 1.0])), count.assign_add(1), y * 2

    def work(number: int) -> Any:
        with owners.owned_by(connection):
            return add(jnp.full(1 + number % 2, number, jnp.float32))

    found = _at_once(work)
    wanted = [number * (1 + number % 2) for number in range(N_THREADS)]
    assert [float(double) for _, _, double in found] == [2.0 * value for value in wanted]
    assert sorted(int(n) for _, n, _ in found) == list(range(1, N_THREADS + 1))
    np.testing.assert_array_equal(total.numpy(), [sum(wanted), N_THREADS])


def test_a_hundred_threads_run_one_session(backend: Backend) -> None:
    backend.reset()
    with tf.Graph().as_default(), tf.device(backend.devices[-1]):
        x = tf.placeholder("float32", ())
        total = tf.Variable(0.0, name="total")
        added, double = total.assign_add(x), x * 2
        with backend.session() as session:
            session.run(total.initializer)
            found = _at_once(
                lambda n: session.run([double, added] if n % 2 else double, {x: float(n)})
            )
            doubles = [value[0] if isinstance(value, list) else value for value in found]
            assert doubles == [2.0 * n for n in range(N_THREADS)]
            assert session.run(total) == sum(range(1, N_THREADS, 2))


INTERRUPTED = """
import signal, threading, time
import jax, jax.numpy as jnp
import psutil
import jflow as tf

def busy(pid):
    process = psutil.Process(pid)
    before = sum(process.cpu_times()[:2])
    while sum(process.cpu_times()[:2]) - before < 0.3:
        time.sleep(0.01)

def interrupt(pid):
    busy(pid)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

@tf.function
def endless(x):
    with tf.device("/job:worker/task:0"):
        return jax.lax.while_loop(lambda y: y < 2.0, lambda y: y * 0.5 + 0.25, x)

@tf.function
def waiting(x):
    with tf.device("/job:worker/task:0"):
        y = jax.lax.while_loop(lambda y: y < 2.0, lambda y: y * 0.5 + 0.25, x)
    with tf.device("/job:ps/task:0"):
        return total.assign_add(y)

with tf.LocalCluster(ps=1, workers=1) as cluster, tf.connect(cluster.target("ps")):
    with tf.device("/job:ps/task:0"):
        total = tf.Variable(1.0, name="total")
    add = tf.function(lambda x: total.assign_add(x))
    add(1.0)
    threading.Thread(target=interrupt, args=[cluster.pid("worker")]).start()
    try:
        waiting(0.0)
    except KeyboardInterrupt:
        print("interrupted")
    # The share of this task has ended, and its variable is free.
    print(float(add(1.0)), float(total.numpy()))
    print(float(tf.function(lambda x: x + total.value())(1.0)))
"""


def test_ctrl_c_cancels_a_remote_step_and_leaves_the_connection_usable() -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["interrupted", "3.0", "3.0", "4.0"], done.stderr
