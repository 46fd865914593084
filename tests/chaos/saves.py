"""Tasks that are killed while they save, and what the checkpoint has afterwards."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import jflow as tf
from jflow.errors import OpError
from jflow.testing import FAILPOINTS, Kill, ProcessCluster

POINTS = sorted(
    [name for name in FAILPOINTS if name.startswith("checkpoint.")]
    + ["worker.before_snapshot", "worker.after_commit"]
)
"""The failpoints of a save."""

AT_THE_COMMIT = {
    *("checkpoint.before_manifest", "checkpoint.manifest_written", "checkpoint.manifest_renamed"),
    *("checkpoint.committed", "worker.after_commit"),
}
"""Those that only the task comes to that commits, which is the one of the first variable."""

TASKS = [("ps", 0), ("ps", 1), ("worker", 0)]
"""Each task has a variable; sessions are opened on the last one."""

_PATIENT = tf.ConfigProto(operation_timeout_in_ms=100_000)


@dataclass
class SavesOutcome:
    """What became of a run.

    Attributes:
      seed: what it depended on.
      n_kills: tasks that were killed while they saved.
      n_saves: saves that succeeded.
      n_new: kills after which the checkpoint was the one that was being written.
      violations: what was wrong.
    """

    seed: int
    n_kills: int = 0
    n_saves: int = 0
    n_new: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.n_kills} kills in saves, {self.n_saves} saves, "
            f"{self.n_new} times the new checkpoint was whole, {len(self.violations)} violations"
        )


class _Model:
    """A counter on each task, and a step that increases all of them."""

    def __init__(self) -> None:
        self.graph = tf.Graph()
        self.variables = []
        with self.graph.as_default():
            for job, index in TASKS:
                with tf.device(f"/job:{job}/task:{index}"):
                    zero = np.zeros(1000, np.int32)
                    self.variables.append(tf.Variable(zero, name=f"{job}{index}"))
            self.train = tf.group(*(one.assign_add(np.int32(1)) for one in self.variables))
            self.initialize = tf.global_variables_initializer()
            self.saver = tf.train.Saver()


Kills = Sequence[tuple[tuple[str, int], str]]
"""Which task is killed at which failpoint, one after the other."""

KILLS: Kills = [
    (task, point)
    for task in TASKS
    for point in POINTS
    if task == TASKS[0] or point not in AT_THE_COMMIT
]


def run_saves(n_kills: int, seed: int, folder: Path, kills: Kills = KILLS) -> SavesOutcome:
    """Kills a task in each of some saves, and checks what is left.

    Args:
      n_kills: how many saves.
      seed: decides how often a task comes to the failpoint before it is killed.
      folder: where the checkpoint is.
      kills: where, again and again.
    """
    rng, outcome, model = random.Random(seed), SavesOutcome(seed), _Model()
    path = str(folder / "model")
    planned = list(itertools.islice(itertools.cycle(kills), n_kills))
    victim, point = planned[0]
    armed = {"/job:{}/task:{}".format(*victim): {point: Kill(skip=1 + rng.randrange(2))}}
    with ProcessCluster(ps=2, workers=1, points=armed) as cluster:
        with tf.Session(cluster.target(), model.graph, _PATIENT) as session:
            session.run(model.initialize)
            model.saver.save(session, path)
        last = 0
        for number, (victim, point) in enumerate(planned, start=1):
            with tf.Session(cluster.target(), model.graph, _PATIENT) as session:
                model.saver.restore(session, path)
                most = _save_until_killed(session, model, path, outcome)
            cluster.wait_until_ended(*victim)
            outcome.n_kills += 1
            following = planned[number] if number < n_kills else (victim, "")
            if following[0] != victim:
                cluster.restart(*victim)
            cluster.restart(
                *following[0], {following[1]: Kill(skip=rng.randrange(2))} if following[1] else {}
            )
            where = f"{point} on {victim}"
            last = _check(cluster.target(), model, path, (last, most), where, outcome)
        with tf.Session(cluster.target(), model.graph, _PATIENT) as session:
            model.saver.restore(session, path)
            model.saver.save(session, path)
    left = sorted(one.name for one in folder.iterdir() if one.name.startswith(("model", "check")))
    if len(left) != len(TASKS) + 3:  # shards, manifest, graph, list of checkpoints
        outcome.violations.append(f"files are left over: {left}")
    return outcome


def _save_until_killed(session: tf.Session, model: _Model, path: str, outcome: SavesOutcome) -> int:
    """Saves beside training until a task is lost; returns the most steps that may be saved."""
    with _training(session, model) as n_begun:
        start = int(tf.train.load_variable(path, model.variables[0].op.name)[0])
        try:
            while True:
                model.saver.save(session, path)
                outcome.n_saves += 1
        except OpError:
            return start + n_begun[0]


@contextmanager
def _training(session: tf.Session, model: _Model) -> Iterator[list[int]]:
    """A block beside which a thread trains; gives how many steps have begun."""
    # Registered here, because a step that is registered while a task is lost waits for it.
    is_over, n_begun = threading.Event(), [1]
    session.run(model.train)

    def train() -> None:
        try:
            while not is_over.is_set():
                n_begun[0] += 1
                session.run(model.train)
        except OpError:
            pass  # the task is lost

    thread = threading.Thread(target=train)
    thread.start()
    try:
        yield n_begun
    finally:
        is_over.set()
        thread.join()


def _check(
    target: str,
    model: _Model,
    path: str,
    bounds: tuple[int, int],
    where: str,
    outcome: SavesOutcome,
) -> int:
    """Notes what is wrong with a checkpoint; returns how many steps it has."""
    least, most = bounds
    with tf.Session(target, model.graph, _PATIENT) as session:
        try:
            model.saver.restore(session, path)
        except (OpError, ValueError) as error:
            outcome.violations.append(f"{where}: it cannot be restored: {error}")
            return least
        counts = {int(count) for value in session.run(model.variables) for count in value}
    count = max(counts)
    if len(counts) > 1 or not least <= count <= most:
        outcome.violations.append(f"{where}: counts {counts}, expected one of {bounds}")
    outcome.n_new += count > least
    return count
