"""TensorFlow's step on a parameter server and workers, for the figures of `parameter_servers`."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.perceptron import BASE, FRESH, IN_STEP, LARGE, N_AT_ONCE, RATE, TWO_AT_ONCE, Size
from bench.tensorflow_servers import cluster, tf
from bench.timing import alternate, tell

PS, WORKERS = "/job:ps/task:0", ("/job:worker/task:0", "/job:worker/task:1")


def variables(size: Size) -> list[Any]:
    """The parameters, on the parameter server, which makes their first values itself."""
    with tf.device(PS):
        return [tf.Variable(tf.random_normal(w.shape, stddev=0.05)) for w in size.weights()]


def slopes_on(worker: str, weights: list[Any], size: Size) -> tuple[Any, Any, list[Any]]:
    """Forward and backward pass on a worker: feeds, the loss and the gradients."""
    with tf.device(worker):
        feeds = [tf.placeholder(tf.float32, value.shape) for value in size.data()]
        x, y = feeds
        logits = tf.nn.relu(x @ weights[0]) @ weights[1]
        loss = -tf.reduce_mean(tf.reduce_sum(tf.nn.log_softmax(logits) * y, -1))
        return feeds, loss, tf.gradients(loss, weights)


def updated(weights: list[Any], slopes: list[Any]) -> Any:
    """The update, on the parameter server."""
    with tf.device(PS):
        pairs = zip(weights, slopes, strict=True)
        return tf.group(*(w.assign_sub(RATE * slope) for w, slope in pairs))


def step(session: Any, size: Size) -> Callable[[], Any]:
    """One step of one worker."""
    weights = variables(size)
    feeds, loss, slopes = slopes_on(WORKERS[0], weights, size)
    train = updated(weights, slopes)
    session.run([w.initializer for w in weights])
    run = session.make_callable([loss, train], feeds)
    batch = size.data()
    return lambda: run(*batch)


def in_step(session: Any, size: Size) -> Callable[[], Any]:
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
    train = updated(weights, taken)
    session.run([w.initializer for w in weights])
    run = session.make_callable([*losses, train, *applied], feeds)
    batch = size.data()
    return lambda: run(*batch, *batch)


def at_once(targets: list[str], size: Size) -> float:
    """Seconds a step while two workers take steps, each for a client of its own."""
    weights = variables(size)
    parts = [slopes_on(worker, weights, size) for worker in WORKERS]
    trains = [updated(weights, slopes) for _, _, slopes in parts]
    sessions = [tf.Session(target) for target in targets]
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
    seconds = statistics.median(measured() for _ in range(5))
    for session in sessions:
        session.close()
    return seconds


if __name__ == "__main__":
    with cluster(2) as targets:
        for size in (BASE, *LARGE):
            with tf.Graph().as_default(), tf.Session(targets[0]) as session:
                call = step(session, size)
                tell(alternate({f"TensorFlow {size.name}": call}, size.n, rounds=5))
        with tf.Graph().as_default(), tf.Session(targets[0]) as session:
            call = in_step(session, BASE)
            tell(alternate({f"TensorFlow {IN_STEP}": call}, BASE.n, rounds=5))
        with tf.Graph().as_default():
            tell({f"TensorFlow {TWO_AT_ONCE}": at_once(targets, BASE)})
