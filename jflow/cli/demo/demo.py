"""`jflow demo`: a cluster, placement, asynchronous training, shared state, a picture, a reset."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import jflow as tf
from jflow.base.progress import Progress
from jflow.base.text import seconds_text
from jflow.cli.demo.digits import Split, load_digits
from jflow.cli.demo.model import BATCH, CONTAINER, Model, accuracy, build, train_with_jax
from jflow.view.picture import save_picture

N_WORKERS = 2
STEPS_PER_WORKER = 400
STRATEGIES = ("auto", "single", "round_robin", "rules")
CONFIG = tf.ConfigProto(placement=STRATEGIES[0])


def run_demo(picture: Path) -> None:
    """Runs the demo and prints what it does.

    Args:
      picture: the file for the picture of the placed graph, in SVG.
    """
    started = time.perf_counter()
    training, test = load_digits()
    print("1. A cluster on this machine: one parameter server and two workers, three processes.")
    with tf.LocalCluster(ps=1, workers=N_WORKERS) as cluster:
        for task in cluster.tasks:
            print(f"   {task} at {cluster.cluster_spec.task_address(task.job, task.index)}")
        print("2. A training step, by the strategy that places it: predicted time, operations.")
        _compare(cluster)
        print("3. A client of each worker trains one model on handwritten digits, at its own pace.")
        trained = _train(cluster, training, test)
        plain = train_with_jax(training, test, N_WORKERS * STEPS_PER_WORKER)
        print(f"   accuracy on {len(test.images)} images it has not seen: {trained:.1%}")
        print(f"   the same model by plain JAX in one process:   {plain:.1%}")
        print("4. A new session on the other worker sees the trained variables:")
        print(f"   accuracy there, without any training: {_look(cluster, test, picture):.1%}")
        print(f"   a picture of the placed graph is in {picture}")
        print(f"5. Resetting the container {CONTAINER!r} frees them:")
        _reset(cluster)
    print(f"Done in {time.perf_counter() - started:.0f} s; no process is left.")


def _compare(cluster: tf.LocalCluster) -> None:
    """Prints the predicted time of a training step under each strategy, and where it would run."""
    with tf.Graph().as_default():
        model = build(1)
        for placement in STRATEGIES:
            config = tf.ConfigProto(placement=placement)
            with tf.Session(cluster.target("worker", 0), config=config) as session:
                explanation = session.explain(*model.step)
            n_ops = Counter(str(device.task) for device in explanation.placement.values())
            places = ", ".join(f"{n} on {task}" for task, n in sorted(n_ops.items()))
            time_taken = seconds_text(explanation.predicted_seconds)
            print(f"   {placement:11} {time_taken:>8}   {places}")
            if placement == STRATEGIES[0]:
                bound = seconds_text(explanation.lower_bound)
        print(f"   lower bound {bound:>8}   no placement takes less, by the same costs")


def _train(cluster: tf.LocalCluster, training: Split, test: Split) -> float:
    with tf.Graph().as_default():
        model = build(len(test.images))
        with tf.Session(cluster.target("worker", 0), config=CONFIG) as session:
            session.run(model.initialize)
            with (
                Progress(N_WORKERS * STEPS_PER_WORKER, "   training") as progress,
                ThreadPoolExecutor(N_WORKERS) as threads,
            ):
                work = partial(_train_worker, cluster, training, test, progress)
                list(threads.map(work, range(N_WORKERS)))
            return _accuracy(session, model, test)


def _train_worker(
    cluster: tf.LocalCluster, training: Split, test: Split, progress: Progress, worker: int
) -> None:
    """Trains like a separate program would: builds the graph, opens a session and runs steps."""
    with tf.Graph().as_default():
        model = build(len(test.images))
        with tf.Session(cluster.target("worker", worker), config=CONFIG) as session:
            for images, labels in training.batches(BATCH, STEPS_PER_WORKER, seed=worker):
                fed = {model.images: images, model.labels: labels}
                loss, _ = session.run([model.loss, model.train], fed)
                progress.advance(f"loss {loss:.3f}")


def _look(cluster: tf.LocalCluster, test: Split, picture: Path) -> float:
    with tf.Graph().as_default():
        model = build(len(test.images))
        with tf.Session(cluster.target("worker", 1), config=CONFIG) as session:
            save_picture(session.explain(*model.step), picture)
            return _accuracy(session, model, test)


def _accuracy(session: tf.Session, model: Model, test: Split) -> float:
    return accuracy(session.run(model.predictions, {model.test_images: test.images}), test.labels)


def _reset(cluster: tf.LocalCluster) -> None:
    tf.Session.reset(cluster.target("worker", 0), [CONTAINER])
    with tf.Graph().as_default():
        model = build(1)
        with tf.Session(cluster.target("worker", 0)) as session:
            try:
                session.run(model.variables[0])
            except tf.errors.FailedPreconditionError as error:
                print(f"   {error.message.split(';')[0]}")
