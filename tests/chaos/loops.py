"""Tasks that are killed while loops run on them, and what became of the elements they took.

A loop takes elements out of a queue on the parameter server, computes on a worker, and counts each
element in a variable on the parameter server. A worker that is killed takes one element with it at
most, that of the iteration under way, and no element is counted twice.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import numpy as np

import jflow as tf
from jflow.errors import OpError
from jflow.testing import PATIENCE_S, ProcessCluster

_PATIENT = tf.ConfigProto(operation_timeout_in_ms=100_000)
LONGEST_LIFE_S = 0.5


@dataclass
class LoopsOutcome:
    """What became of a run.

    Attributes:
      seed: what it depended on.
      n_kills: workers that were killed while their loop ran.
      n_counted: elements that were counted.
      n_missing: elements that are neither counted nor in the queue.
      violations: what was wrong.
    """

    seed: int
    n_kills: int = 0
    n_counted: int = 0
    n_missing: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.n_kills} kills in loops, {self.n_counted} elements counted, "
            f"{self.n_missing} taken and not counted, {len(self.violations)} violations"
        )


class _Program:
    """The loop of each worker, and what it works on."""

    def __init__(self, n_elements: int, n_workers: int) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            with tf.device("/job:ps/task:0"):
                self.queue = tf.FIFOQueue(n_elements, tf.int32, [()], shared_name="elements")
                self.counts = tf.Variable(np.zeros(n_elements, np.int32), name="counts")
                self.fill = self.queue.enqueue_many([np.arange(n_elements, dtype=np.int32)])
            self.loops = [self._loop(worker) for worker in range(n_workers)]
            self.size = self.queue.size()

    def _loop(self, worker: int) -> tf.Tensor:
        def body(number: tf.Tensor) -> tf.Tensor:
            with tf.device("/job:ps/task:0"):
                element = self.queue.dequeue()
            one = tf.ones_like(element)  # computed on the worker
            with tf.device("/job:ps/task:0"):
                counted = tf.scatter_add(self.counts, tf.stack([element]), tf.stack([one]))
            with tf.control_dependencies([counted]):
                return number + one

        with tf.device(f"/job:worker/task:{worker}"):
            return tf.while_loop(lambda _: tf.constant(True), body, [0])


def run_loops(n_kills: int, seed: int, n_elements: int = 1_000_000) -> LoopsOutcome:
    """Kills workers while their loops run, again and again, and counts the elements.

    Args:
      n_kills: how many.
      seed: decides which worker is killed when.
      n_elements: how many elements the queue begins with, more than can be counted.
    """
    rng, outcome = random.Random(seed), LoopsOutcome(seed)
    program = _Program(n_elements, n_workers=2)
    with ProcessCluster(ps=1, workers=3) as cluster:
        target = cluster.target("worker", 2)  # which lives, and reports the ends of the others
        with tf.Session(target, program.graph, _PATIENT) as session:
            session.run(program.counts.initializer)
            session.run(program.fill)
            while outcome.n_kills < n_kills:
                _run_until_killed(cluster, target, program, session, rng, outcome)
            _check(session, program, n_elements, outcome)
    return outcome


def _run_until_killed(
    cluster: ProcessCluster,
    target: str,
    program: _Program,
    observer: tf.Session,
    rng: random.Random,
    outcome: LoopsOutcome,
) -> None:
    """Runs both loops, kills a worker, and waits for the end of its loop and the other one."""
    victim = rng.randrange(2)
    sessions = [tf.Session(target, program.graph, _PATIENT) for _ in program.loops]
    try:
        loops = [
            session.run_async(loop) for session, loop in zip(sessions, program.loops, strict=True)
        ]
        before = int(observer.run(program.size))
        deadline = time.monotonic() + PATIENCE_S
        while int(observer.run(program.size)) > before - 20 and time.monotonic() < deadline:
            for loop in loops:
                if loop.done():
                    loop.result()
        time.sleep(rng.uniform(0.0, LONGEST_LIFE_S))
        cluster.kill("worker", victim)
        outcome.n_kills += 1
        try:
            loops[victim].result(PATIENCE_S)
            outcome.violations.append(f"a loop on the killed worker {victim} has ended well")
        except OpError as error:
            if "iteration" not in str(error):
                outcome.violations.append(f"no iteration is named: {error}")
        loops[1 - victim].cancel()
    finally:
        for session in sessions:
            session.close()
    cluster.restart("worker", victim)


def _check(session: tf.Session, program: _Program, n_elements: int, outcome: LoopsOutcome) -> None:
    counts, size = session.run([program.counts, program.size])
    if counts.max() > 1:
        outcome.violations.append(f"{(counts > 1).sum()} elements were counted more than once")
    outcome.n_counted = int((counts > 0).sum())
    outcome.n_missing = n_elements - outcome.n_counted - int(size)
    # One for the killed loop, and one for the other one, which was cancelled.
    if not 0 <= outcome.n_missing <= 2 * outcome.n_kills:
        outcome.violations.append(
            f"{outcome.n_missing} elements are neither counted nor there, after "
            f"{outcome.n_kills} kills"
        )
