"""Many steps of a session: for one request, and by many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import jflow as tf
from bench.timing import alternate, tell

N_STEPS = 20_000
N_THREADS, N_OF_THREADS = 100, 2_000
N_ROWS = 1_000


def counter(session: tf.Session, name: str) -> tuple[Any, Any]:
    """A variable on the session's own task, and the operation that counts it up."""
    with session.graph.as_default(), tf.device("/job:ps/task:0"):
        v = tf.Variable(0.0, name=name)
        grow = v.assign_add(1.0)
    session.run(v.initializer)
    return v, grow.op


def donated() -> Callable[[], None]:
    """As many updates of an array by a jitted function that donates it."""
    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    state = [add(jnp.zeros(()))]

    def run() -> None:
        value = state[0]
        for _ in range(N_STEPS):
            value = add(value)
        value.block_until_ready()
        state[0] = value

    return run


def threads(session: tf.Session, op: Any, n: int) -> Callable[[], None]:
    """The same steps, divided among threads."""

    def work() -> None:
        for _ in range(N_OF_THREADS // n):
            session.run(op)

    def run() -> None:
        started = [threading.Thread(target=work) for _ in range(n)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()

    return run


def loops() -> dict[str, Callable[[], Any]]:
    """A loop of graph code on one device beside `jax.lax.while_loop`, in this process."""
    x = tf.placeholder(tf.float32, [])
    _, y = tf.while_loop(lambda i, _: i < N_ROWS, lambda i, y: (i + 1, y * x), [0, x])
    session = tf.Session()
    jitted = jax.jit(
        lambda x: jax.lax.while_loop(
            lambda c: c[0] < N_ROWS, lambda c: (c[0] + 1, c[1] * x), (0, x)
        )[1]
    )
    return {
        "while_loop of 1,000 iterations": lambda: session.run(y, {x: 1.0}),
        "jax.jit while_loop of 1,000 iterations": lambda: jitted(1.0).block_until_ready(),
    }


def producers(session: tf.Session, where: str) -> dict[str, Callable[[], Any]]:
    """A loop that fills a queue where it is, beside a client that does so step by step."""
    with session.graph.as_default(), tf.device("/cpu:0" if where == "local" else "/job:ps/task:0"):
        queue = tf.FIFOQueue(N_ROWS, tf.float32, shapes=[()])

        def body(i: Any) -> Any:
            with tf.control_dependencies([queue.enqueue(tf.to_float(i) * 2.0)]):
                return i + 1

        loop = tf.while_loop(lambda i: i < N_ROWS, body, [0])
        x = tf.placeholder(tf.float32, [])
        put, drain = queue.enqueue(x * 2.0), queue.dequeue_many(N_ROWS)

    def by_loop() -> None:
        session.run(loop.op)
        session.run(drain.op)

    def by_steps() -> None:
        for i in range(N_ROWS):
            session.run(put, {x: float(i)})
        session.run(drain.op)

    return {
        f"element by a producer loop, {where}": by_loop,
        f"element by a client's steps, {where}": by_steps,
    }


def main() -> None:
    """Prints the figures."""
    with tf.LocalCluster(ps=1, workers=1) as cluster, tf.Session(cluster.target("ps")) as session:
        v, grow = counter(session, "one")
        runs = {
            "step of run_many": lambda: session.run_many(grow, steps=N_STEPS),
            "local donated update": donated(),
        }
        figures = alternate(runs, 1, items=N_STEPS)
        before = float(session.run(v))
        n_rounds = 3
        divided = {
            "scalar steps by 100 threads": threads(session, grow, N_THREADS),
            "scalar steps by one thread": threads(session, grow, 1),
        }
        figures |= alternate(divided, 1, rounds=n_rounds, items=N_OF_THREADS)
        n_runs = 2 * (n_rounds + 1)
        assert float(session.run(v)) == before + n_runs * N_OF_THREADS, "an update was lost"
        figures |= alternate(producers(session, "on a server"), 1, rounds=5, items=N_ROWS)
    figures |= alternate(loops(), 20)
    with tf.Graph().as_default(), tf.Session() as session:
        figures |= alternate(producers(session, "local"), 1, rounds=5, items=N_ROWS)
    tell(figures)


if __name__ == "__main__":
    main()
