"""The work of a long run: sessions, functions, queues, closures, moves, saves, kills.

Each round does a little of all of it, and checks what it has counted: an update that is lost or
doubled, and an element of a queue, is found in the round in which that happens.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import jflow as tf
from jflow.base.handles import Closing
from jflow.testing import ProcessCluster
from jflow.training.coordinator import ClusterCoordinator
from jflow.training.parameter_servers import ParameterServerStrategy
from tests.state.moves.placing import all_on

PS_0, PS_1 = "/job:ps/task:0", "/job:ps/task:1"
N_STEPS = 200
N_ELEMENTS = 40
N_CLOSURES = 40
KILL_EVERY, MOVE_EVERY, SAVE_EVERY = 25, 5, 10
"""After how many rounds a worker is killed, a variable moves, and the model is saved."""


class Work(Closing):
    """A cluster of two parameter servers and two workers, and the program that uses it.

    Args:
      folder: where it saves.

    Attributes:
      cluster: the cluster; worker 1 is killed again and again, the others live as long as the work.
      n_steps: how many steps and closures have ended.
      done: how often what was done.
      violations: what was wrong.
    """

    def __init__(self, folder: Path) -> None:
        self.n_steps = 0
        self.done: Counter[str] = Counter()
        self.violations: list[str] = []
        self._folder = folder
        self.cluster = ProcessCluster(ps=2, workers=2)
        self._make_graph()
        self._session = tf.Session(self.cluster.target(), self._graph)
        self._session.run(self._initialize)
        spec = tf.train.ClusterSpec(self.cluster.cluster_spec)
        self._strategy = ParameterServerStrategy(spec)
        self._coordinator = ClusterCoordinator(self._strategy)
        with self._strategy.scope():
            self._total = tf.Variable(np.int32(0), name="total")

        @tf.function
        def count(n: Any) -> Any:
            return self._total.assign_add(n)

        self._count = count
        self._expected = self._expected_total = 0

    def _make_graph(self) -> None:
        self._graph = tf.Graph()
        with self._graph.as_default():
            with tf.device(PS_0):
                first = tf.Variable(np.int32(0), name="first")
                self._queue = tf.FIFOQueue(-1, ["int32"], [()], shared_name="elements")
            with tf.device(PS_1):
                second = tf.Variable(np.int32(0), name="second")
            moving = tf.Variable(np.zeros(1000, np.float32), name="moving")
            self._counters = [first, second]
            self._count_both = tf.group(first.assign_add(1), second.assign_add(1))
            self._element = tf.placeholder(np.int32, [])
            self._put, self._take = self._queue.enqueue(self._element), self._queue.dequeue()
            self._size = self._queue.size()
            self._move = moving.assign_add(1.0)
            self._initialize = tf.global_variables_initializer()
            self._saver = tf.train.Saver(max_to_keep=2)

    def round(self) -> None:
        """Does a little of everything."""
        number = self.done["rounds"]
        self._run_steps()
        self._use_session()
        self._trace()
        self._pass_elements()
        self._run_closures(is_killed=number % KILL_EVERY == KILL_EVERY - 1)
        if number % MOVE_EVERY == MOVE_EVERY - 1:
            self._move_state(PS_1 if number // MOVE_EVERY % 2 else PS_0)
        if number % SAVE_EVERY == SAVE_EVERY - 1:
            self._saver.save(self._session, str(self._folder / "model"), global_step=number)
            self.done["saves"] += 1
        self.done["rounds"] += 1

    def _run_steps(self) -> None:
        for _ in range(N_STEPS):
            self._session.run(self._count_both)
        self._expected += N_STEPS
        self._check("counters", self._session.run(self._counters), [self._expected] * 2)
        self._count_steps("steps", N_STEPS + 1)

    def _use_session(self) -> None:
        """Opens a session on its own graph, with a variable that ends with its container."""
        with tf.Graph().as_default(), tf.container("short"):
            v = tf.Variable(np.ones(100, np.float32), name="v")
            with tf.Session(self.cluster.target()) as session:
                session.run(v.initializer)
                self._check("a new session", float(session.run(v.assign_add(v))[0]), 2.0)
        self._count_steps("sessions", 2)

    def _trace(self) -> None:
        """Traces a function anew."""
        function = tf.function(lambda x: x * 2.0 + 1.0)
        self._check("a traced function", float(function(np.float32(3.0))), 7.0)
        self._count_steps("functions", 1)

    def _pass_elements(self) -> None:
        for i in range(N_ELEMENTS):
            self._session.run(self._put, {self._element: i})
        taken = [int(self._session.run(self._take)) for _ in range(N_ELEMENTS)]
        self._check("elements", taken, [*range(N_ELEMENTS)])
        self._check("the size of the queue", int(self._session.run(self._size)), 0)
        self._count_steps("elements", 2 * N_ELEMENTS + 1)

    def _run_closures(self, *, is_killed: bool) -> None:
        for i in range(N_CLOSURES):
            self._coordinator.schedule(self._count, (np.int32(1),), effects="exactly_once")
            if is_killed and i == N_CLOSURES // 2:
                self.cluster.kill("worker", 1)
                self.cluster.restart("worker", 1)
                self.done["kills"] += 1
        self._coordinator.join()
        self._expected_total += N_CLOSURES
        self._check("closures", int(self._total.numpy()), self._expected_total)
        self._count_steps("closures", N_CLOSURES)

    def _move_state(self, target: str) -> None:
        self._session.run(self._move)
        replacement = self._session.replace(all_on(target), fetches=self._move, min_gain=None)
        self.done["moves"] += len(replacement.moved)
        moved = self._session.run(self._move)
        self.done["updates of what moves"] += 2
        self._check("what has moved", float(moved[0]), float(self.done["updates of what moves"]))
        self._count_steps("steps", 2)

    def _count_steps(self, name: str, n: int) -> None:
        self.n_steps += n
        self.done[name] += n

    def _check(self, what: str, got: Any, expected: Any) -> None:
        got = [int(one) for one in got] if isinstance(expected, list) else got
        if got != expected:
            self.violations.append(f"round {self.done['rounds']}: {what}: {got}, not {expected}")

    def close(self) -> None:
        """Ends the program and the cluster."""
        self._session.close()
        self._coordinator.close()
        self.cluster.close()

    def _leave(self, failed: bool) -> None:
        self.close()
