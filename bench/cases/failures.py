"""Workers that are killed, stopped or slow while a coordinator schedules closures onto them."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

import jflow as tf
from bench.timing import tell
from jflow.testing import ProcessCluster

N_KILLS = int(os.environ.get("BENCH_KILLS", "20"))
SECONDS = float(os.environ.get("BENCH_FAILURE_SECONDS", "8"))
N_AHEAD = 400
STOPPED_S, RUNNING_S = 0.09, 0.01
"""A worker that runs for a tenth of the time."""


class Bench:
    """A cluster, a coordinator of it, and closures that take long or short."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.cluster = cluster
        self.strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        self.coordinator = tf.ClusterCoordinator(self.strategy)
        with self.strategy.scope():
            count = tf.Variable(np.float32(0), name="count")

        def closure(n: int) -> Any:
            @tf.function
            def run(x: Any) -> Any:
                y = jax.lax.fori_loop(0, n, lambda _, y: y @ x, x)
                count.assign_add(y[0, 0] * 0 + 1)

            return run

        self._x = np.full((100, 100), 0.01, np.float32)
        self._long, self._short = closure(2000), closure(20)
        for worker in range(3):
            self.wait_for(worker)

    def wait_for(self, worker: int) -> None:
        """Waits until a worker runs closures of both kinds."""
        for fn in (self._long, self._short):
            self.coordinator.schedule(fn, (self._x,), worker=worker).fetch()

    def moved(self, lose: Callable[[str, int], None], back: Callable[[str, int], None]) -> float:
        """Seconds that a closure takes longer because its worker is lost while it runs."""
        alone = self._seconds(lambda: None)
        return self._seconds(lambda: lose("worker", 0), lambda: back("worker", 0)) - alone

    def _seconds(
        self, lose: Callable[[], object], back: Callable[[], object] = lambda: None
    ) -> float:
        value = self.coordinator.schedule(self._long, (self._x,))
        time.sleep(0.05)
        begun = time.perf_counter()
        lose()
        value.fetch()
        taken = time.perf_counter() - begun
        back()
        self.wait_for(0)
        return taken

    def rate(self, seconds: float, **options: Any) -> float:
        """Short closures a second, of which some are always scheduled ahead."""
        waiting: deque[Any] = deque()
        n, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            while len(waiting) < N_AHEAD:
                waiting.append(self.coordinator.schedule(self._short, (self._x,), **options))
            waiting.popleft().fetch()
            n += 1
        taken = time.perf_counter() - begun
        self.coordinator.join()
        return n / taken

    @contextmanager
    def beside(self, act: Callable[[threading.Event], None]) -> Iterator[None]:
        """A block beside which something happens, until the event is set."""
        is_over = threading.Event()
        thread = threading.Thread(target=act, args=(is_over,))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def kill_each(self, is_over: threading.Event) -> None:
        """Kills each worker once in the time of a measurement, and starts it again."""
        for worker in range(3):
            if is_over.wait(SECONDS / 4):
                return
            self.cluster.kill("worker", worker)
            self.cluster.restart("worker", worker)

    def slow_down(self, is_over: threading.Event) -> None:
        """Lets a worker run for a tenth of the time."""
        while not is_over.wait(RUNNING_S):
            self.cluster.pause("worker", 0)
            time.sleep(STOPPED_S)
            self.cluster.resume("worker", 0)


def main() -> None:
    os.environ["JFLOW_LIVENESS_S"] = "3"
    with ProcessCluster(ps=1, workers=3) as cluster:
        bench = Bench(cluster)
        moved = sorted(bench.moved(cluster.kill, cluster.restart) for _ in range(N_KILLS))
        figures = {
            "closure moved after a kill, median": statistics.median(moved),
            "closure moved after a kill, worst": moved[-1],
            "closure moved after a stop, 3 s timers": bench.moved(cluster.pause, cluster.resume),
        }
        alone = bench.rate(SECONDS)
        with bench.beside(bench.kill_each):
            under_kills = bench.rate(SECONDS)
        for worker in range(3):
            bench.wait_for(worker)
        with bench.beside(bench.slow_down):
            with_straggler = bench.rate(SECONDS)
        bench.wait_for(0)
        before = bench.rate(SECONDS / 2, worker=1)
        cluster.kill("worker", 0)
        after = bench.rate(SECONDS / 2, worker=1)
        two_workers = bench.rate(SECONDS)
        # As seconds a closure, so that less is better, as everywhere.
        figures |= {
            "closure, three workers": 1 / alone,
            "closure, each worker killed once in the time": 1 / under_kills,
            "closure, one of three workers ten times slower": 1 / with_straggler,
            "closure, two workers": 1 / two_workers,
            "closure of a survivor before a kill": 1 / before,
            "closure of a survivor after a kill": 1 / after,
        }
        bench.coordinator.close()
        bench.strategy.close()
    tell(figures)


if __name__ == "__main__":
    main()
