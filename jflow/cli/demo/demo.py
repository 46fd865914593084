"""`jflow demo`: a model that no device holds, placed, trained, hit, found again and reset."""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jflow as tf
from jflow.base.progress import Progress
from jflow.base.text import bytes_text, seconds_text
from jflow.cli.demo.model import (
    CONTAINER,
    NOWHERE,
    TOWERS,
    Model,
    Split,
    accuracy,
    build,
    initial_values,
    load_digits,
    train_with_jax,
)
from jflow.view.picture import save_picture

N_STEPS, KILLED_AT, SAVED_EVERY = 150, 90, 25
PLACEMENTS = (
    ("each tower on its worker", TOWERS, "rules"),
    ("all on worker 0", NOWHERE, "rules"),
    ("in turns, as they come", NOWHERE, "round_robin"),
)
"""Name, devices that compute the towers, and what chooses for the rest."""

_N_TIMED = 8
_MEMORY_BYTES = 16 << 20
_LAST_WORKER = 1


def run_demo(picture: Path) -> None:
    """Runs the demo and prints what it does.

    Args:
      picture: the file for the picture of the placed graph, in SVG.
    """
    started = time.perf_counter()
    training, test = load_digits()
    print("1. A cluster on this machine: a parameter server and two workers, three processes.")
    with _SmallCluster(ps=1, workers=len(TOWERS)) as cluster:
        for task in cluster.tasks:
            print(f"   {task} at {cluster.cluster_spec.task_address(task.job, task.index)}")
        print("2. A model of two towers that no device holds, so each worker has one of them.")
        _fit(cluster)
        print("3. One training step in three placements.")
        _compare(cluster, training)
        print(f"4. Training; worker {_LAST_WORKER} is killed on the way.")
        trained = _train(cluster, training, test, partial(_kill_and_restart, cluster))
        plain = train_with_jax(training, test, N_STEPS)
        print(f"   accuracy on {len(test.images)} images it has not seen: {trained:.1%}")
        print(f"   the same model by plain JAX, without a kill: {plain:.1%}")
        print("5. Another program, on the other worker, finds the trained variables by name:")
        print(f"   accuracy there, without any training: {_look(cluster, test, picture):.1%}")
        print(f"   a picture of the placed graph is in {picture}")
        print(f"6. Resetting the container {CONTAINER!r} frees them:")
        _reset(cluster)
    print(f"Done in {time.perf_counter() - started:.0f} s; no process is left.")
    print("Next, a cluster that stays, for your own programs:  jflow up --workers 2")


class _SmallCluster(tf.LocalCluster):
    """A cluster whose tasks say that their devices keep little, as those of large models do."""

    _environment = MappingProxyType({"JFLOW_DEVICE_MEMORY": str(_MEMORY_BYTES)})


def _fit(cluster: tf.LocalCluster) -> None:
    """Prints how large the model is, and what is said where it would be on one device."""
    size = sum(value.nbytes for value in initial_values().values())
    print(f"   its parameters take {bytes_text(size)}, a device keeps {bytes_text(_MEMORY_BYTES)}")
    with tf.Graph().as_default():
        model = build(1, parameters=dict.fromkeys(TOWERS, "/job:ps/task:0"))
        config = tf.ConfigProto(placement="auto")
        with tf.Session(cluster.target("worker", 0), config=config) as session:
            try:
                session.explain(*model.step)
            except tf.errors.ResourceExhaustedError as error:
                refused, *_ = error.message.partition(" (<")
                print(f"   all on one: {refused}")


def _compare(cluster: tf.LocalCluster, training: Split) -> None:
    """Prints what a training step takes and sends in three placements."""
    print("                               predicted   measured        sent   tasks")
    for name, towers, placement in PLACEMENTS:
        with tf.Graph().as_default():
            model = build(1, towers)
            config = tf.ConfigProto(placement=placement)
            with tf.Session(cluster.target("worker", 0), config=config) as session:
                session.run(tf.global_variables_initializer())
                explanation = session.explain(*model.step)
                seconds = explanation.predicted_seconds, _measured(session, model, training)
        predicted, measured = map(seconds_text, seconds)
        sent = bytes_text(_sent(explanation.placement))
        tasks = len({device.task for device in explanation.placement.values()})
        print(f"   {name:26} {predicted:>10} {measured:>10} {sent:>11}   {tasks}")
    print("   (predicted by default costs; `jflow calibrate` measures those of your machine)")


def _sent(placement: Mapping[tf.Operation, Any]) -> int:
    """Returns the bytes that a step sends between devices."""
    sent = {
        (tensor, device)
        for op, device in placement.items()
        for tensor in op.inputs
        if tensor.op in placement and placement[tensor.op] != device
    }
    return sum(math.prod(tensor.shape) * tensor.dtype.itemsize for tensor, _ in sent)


def _measured(session: tf.Session, model: Model, training: Split) -> float:
    """Returns the least seconds of a few steps."""
    fed = dict(zip((model.images, model.labels), training.batch(0), strict=True))
    times = []
    for _ in range(1 + _N_TIMED):
        begun = time.perf_counter()
        session.run([model.loss, model.number], fed)
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def _train(
    cluster: tf.LocalCluster, training: Split, test: Split, disturb: Callable[[], None]
) -> float:
    """Trains and returns the accuracy; `disturb` is called once on the way."""
    tf.Session.reset(cluster.target("worker", 0), [CONTAINER])
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        model = build(len(test.images))
        with tf.train.MonitoredTrainingSession(
            cluster.target("worker", 0),
            checkpoint_dir=folder,
            save_checkpoint_steps=SAVED_EVERY,
            save_summaries_steps=None,
            log_step_count_steps=None,
        ) as session:
            with Progress(N_STEPS, "   training") as progress:
                _run_steps(session, model, training, progress, range(KILLED_AT))
                lost = f"worker {_LAST_WORKER} is killed after step {KILLED_AT}"
                progress.say(f"   {lost}, and its tower is lost")
                disturb()
                again = _step(session, model, training, KILLED_AT)
                progress.say(f"   training goes on after step {again - 1}, the last that was saved")
                _run_steps(session, model, training, progress, range(again, N_STEPS))
            trained = _accuracy(session, model, test)
    return trained


def _run_steps(
    session: tf.train.MonitoredSession,
    model: Model,
    training: Split,
    progress: Progress,
    numbers: Iterable[int],
) -> None:
    """Runs steps and shows those that run for the first time."""
    for number in numbers:
        _step(session, model, training, number)
        if number >= progress.n_done:
            progress.advance()


def _step(session: tf.train.MonitoredSession, model: Model, training: Split, number: int) -> int:
    """Runs a step with the batch of its number; returns how many there were, restored ones too."""
    fed = dict(zip((model.images, model.labels), training.batch(number), strict=True))
    return int(session.run(model.number, fed))


def _kill_and_restart(cluster: tf.LocalCluster) -> None:
    """Kills a worker and starts it again, beside the training, as `jflow up --restart` does."""
    cluster.kill("worker", _LAST_WORKER)
    threading.Thread(target=cluster.restart, args=("worker", _LAST_WORKER)).start()


def _look(cluster: tf.LocalCluster, test: Split, picture: Path) -> float:
    with tf.Graph().as_default():
        model = build(len(test.images))
        with tf.Session(cluster.target("worker", _LAST_WORKER)) as session:
            save_picture(session.explain(*model.step), picture, max_boxes=20)
            return _accuracy(session, model, test)


def _accuracy(session: Any, model: Model, test: Split) -> float:
    return accuracy(session.run(model.predictions, {model.test_images: test.images}), test.labels)


def _reset(cluster: tf.LocalCluster) -> None:
    tf.Session.reset(cluster.target("worker", 0), [CONTAINER])
    with tf.Graph().as_default():
        model = build(1)
        with tf.Session(cluster.target("worker", 0)) as session:
            try:
                session.run(model.variables["left/w0"])
            except tf.errors.FailedPreconditionError as error:
                print(f"   {error.message.split(';')[0]}")
