"""The step that parameter servers exist for, over each transport, beside `jax.jit` of its parts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from bench.perceptron import BASE, FRESH, IN_STEP, LARGE, N_AT_ONCE, RATE, TWO_AT_ONCE, Size
from bench.timing import alternate, tell

TRANSPORTS = ("unix", "grpc")
PS, WORKERS = "/job:ps/task:0", ("/job:worker/task:0", "/job:worker/task:1")


def variables(size: Size) -> list[tf.Variable]:
    """The parameters, on the parameter server."""
    with tf.device(PS):
        return [tf.Variable(w, name=f"w{w.size}") for w in size.weights()]


def slopes_on(worker: str, weights: list[Any], size: Size) -> tuple[Any, list[Any], list[Any]]:
    """Forward and backward pass on a worker: feeds, the loss and the gradients."""
    with tf.device(worker):
        feeds = [tf.placeholder(tf.float32, value.shape) for value in size.data()]
        x, y = feeds
        logits = tf.nn.relu(x @ weights[0]) @ weights[1]
        loss = -tf.numpy.mean(tf.numpy.sum(tf.nn.log_softmax(logits) * y, -1))
        return feeds, loss, tf.gradients(loss, weights)


def updated(weights: list[Any], slopes: list[Any]) -> Any:
    """The update, on the parameter server."""
    with tf.device(PS):
        pairs = zip(weights, slopes, strict=True)
        return tf.group(*(w.assign_sub(RATE * slope) for w, slope in pairs))


def step(session: tf.Session, size: Size) -> Callable[[], Any]:
    """One step of one worker."""
    weights = variables(size)
    feeds, loss, slopes = slopes_on(WORKERS[0], weights, size)
    session.run([w.initializer for w in weights])
    run = session.make_callable([loss, updated(weights, slopes)], feeds)
    batch = size.data()
    return lambda: run(*batch)


def in_step(session: tf.Session, size: Size) -> Callable[[], Any]:
    """One step of two workers, whose gradients accumulators on the parameter server sum up."""
    weights = variables(size)
    with tf.device(PS):
        sums = [tf.ConditionalAccumulator(tf.float32, w.shape) for w in weights]
    feeds, losses, applied = [], [], []
    for worker in WORKERS:
        own_feeds, loss, slopes = slopes_on(worker, weights, size)
        feeds += own_feeds
        losses.append(loss)
        with tf.device(PS):
            applied += [s.apply_grad(g, FRESH) for s, g in zip(sums, slopes, strict=True)]
    with tf.device(PS):
        taken = [one.take_grad(len(WORKERS)) for one in sums]
    session.run([w.initializer for w in weights])
    run = session.make_callable([*losses, updated(weights, taken), *applied], feeds)
    batch = size.data()
    return lambda: run(*batch, *batch)


def at_once(stack: ExitStack, targets: list[str], size: Size) -> Callable[[], float]:
    """Measures the seconds a step while two workers take steps, each for a client of its own."""
    weights = variables(size)
    parts = [slopes_on(worker, weights, size) for worker in WORKERS]
    trains = [updated(weights, slopes) for _, _, slopes in parts]
    sessions = [stack.enter_context(tf.Session(target)) for target in targets]
    sessions[0].run([w.initializer for w in weights])
    batch = size.data()
    runs = [
        session.make_callable([loss, train], feeds)
        for session, (feeds, loss, _), train in zip(sessions, parts, trains, strict=True)
    ]

    def many(run: Callable[..., Any], n: int) -> None:
        for _ in range(n):
            run(*batch)

    def measured() -> float:
        threads = [threading.Thread(target=many, args=(run, N_AT_ONCE)) for run in runs]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (time.perf_counter() - begun) / (N_AT_ONCE * len(runs))

    for run in runs:
        many(run, 5)
    return measured


def alone(size: Size) -> Callable[[], Any]:
    """All that a step computes, as one program of one process."""

    def loss(weights: list[Any], x: Any, y: Any) -> Any:
        logits = jax.nn.relu(x @ weights[0]) @ weights[1]
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * y, -1))

    def train(weights: list[Any], x: Any, y: Any) -> tuple[Any, list[Any]]:
        value, slopes = jax.value_and_grad(loss)(weights, x, y)
        return value, [w - RATE * slope for w, slope in zip(weights, slopes, strict=True)]

    jitted = jax.jit(train, donate_argnums=0)
    state, batch = [jnp.asarray(w) for w in size.weights()], size.data()

    def run() -> None:
        nonlocal state
        value, state = jitted(state, *batch)
        jax.block_until_ready((value, state))

    return run


def main() -> None:
    """One transport after the other in each turn, so that a slow moment meets all."""
    with ExitStack() as stack:
        sizes = (BASE, *LARGE)
        calls = {size.name: {f"jax.jit {size.name}": alone(size)} for size in sizes}
        calls[IN_STEP] = {}
        concurrent: dict[str, Callable[[], float]] = {}
        for transport in TRANSPORTS:
            os.environ["JFLOW_TRANSPORT"] = transport
            cluster = stack.enter_context(tf.LocalCluster(ps=1, workers=2))
            targets = [cluster.target("worker", i) for i in range(2)]
            stack.enter_context(tf.Graph().as_default())
            session = stack.enter_context(tf.Session(targets[0]))
            for size in sizes:
                calls[size.name][f"{transport}: {size.name}"] = step(session, size)
            calls[IN_STEP][f"{transport}: {IN_STEP}"] = in_step(session, BASE)
            concurrent[f"{transport}: {TWO_AT_ONCE}"] = at_once(stack, targets, BASE)
        for size in sizes:
            tell(alternate(calls[size.name], size.n, rounds=5))
        tell(alternate(calls[IN_STEP], BASE.n, rounds=5))
        taken = [{name: call() for name, call in concurrent.items()} for _ in range(5)]
        tell({name: float(np.median([one[name] for one in taken])) for name in concurrent})


if __name__ == "__main__":
    main()
