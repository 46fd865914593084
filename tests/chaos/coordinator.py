"""Workers, parameter servers and coordinators that are killed while closures count."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from jflow.closing import Closing
from jflow.testing import Kill, ProcessCluster, ProgramProcess, cpu_time, wait_until
from tests.chaos.coordinated import FENCED

N_PS, N_WORKERS, N_CLOSURES = 2, 3, 40
PROGRAM = "tests.chaos.coordinated"
LONGEST_PAUSE_S = 0.3

WORKER_POINTS = (
    *("worker.before_run", "worker.after_run", "master.after_register", "master.after_run"),
    *("master.before_commit", "master.after_commit"),
)
"""Failpoints around acknowledgements that a worker comes to, as the master of its closures."""

PS_POINTS = (
    *("worker.before_run", "worker.after_run", "worker.after_stage"),
    *("worker.before_decision", "worker.after_decision"),
)
"""Those that a parameter server comes to."""


N_PASSES = {"master.after_register": 2}
"""How often a task comes to a point at least before it is idle; else as often as there are runs."""


@dataclass(frozen=True)
class Faults:
    """How often what fails.

    Attributes:
      worker_kills: workers that are killed, and started again at their address.
      ps_restarts: parameter servers, likewise.
      coordinator_kills: coordinators that are killed; another one goes on.
      coordinator_stops: coordinators that are stopped, replaced, and go on then.
      worker_points: workers that are killed at a failpoint, each of `WORKER_POINTS` in turn.
      ps_points: parameter servers, likewise.
    """

    worker_kills: int = 0
    ps_restarts: int = 0
    coordinator_kills: int = 0
    coordinator_stops: int = 0
    worker_points: int = 0
    ps_points: int = 0

    def in_any_order(self, rng: random.Random) -> list[str]:
        """The names of faults, one for each time."""
        names = [name for name, times in vars(self).items() for _ in range(times)]
        rng.shuffle(names)
        return names


@dataclass
class CountOutcome:
    """What became of a run.

    Attributes:
      seed: what it depended on.
      effects: the mode of the closures.
      n_faults: how often something failed.
      n_rounds: rounds of closures that were joined.
      n_whole: those of them in which no parameter server was lost.
      n_doubled: increments beyond those that were scheduled.
      seconds: how long it took.
      violations: what was wrong.
    """

    seed: int
    effects: str
    n_faults: int = 0
    n_rounds: int = 0
    n_whole: int = 0
    n_doubled: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.effects}, {self.seconds:.0f} s, seed {self.seed}: {self.n_faults} faults, "
            f"{self.n_rounds * N_CLOSURES} closures in {self.n_rounds} rounds ({self.n_whole} "
            f"without the loss of a parameter server), {self.n_doubled} increments doubled, "
            f"{len(self.violations)} violations"
        )

    def check(self, told: dict[str, Any]) -> None:
        """Checks what a round has counted."""
        self.n_rounds += 1
        self.n_whole += told["is_whole"]
        for before, after in zip(told["before"], told["after"], strict=True):
            gained = after - before
            if told["is_whole"]:
                self.n_doubled += max(gained - N_CLOSURES, 0)
            if told["is_whole"] and gained < N_CLOSURES:
                self.violations.append(f"{N_CLOSURES - gained} increments were lost: {told}")
            if self.effects == "exactly_once" and gained > N_CLOSURES:
                self.violations.append(f"{gained - N_CLOSURES} increments were doubled: {told}")


class _Coordinator(Closing):
    """The process of a coordinator."""

    def __init__(self, cluster: ProcessCluster, folder: Path, effects: str) -> None:
        settings = {
            "cluster": cluster.cluster_spec.as_dict(),
            "checkpoint": str(folder / "model"),
            "n_closures": N_CLOSURES,
            "effects": effects,
        }
        command = ["-m", PROGRAM, json.dumps(settings)]
        self.program = ProgramProcess(command, zygote=cluster.zygote)

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it says, until it ends."""
        while line := self.program.read_line():
            yield json.loads(line)

    def __enter__(self) -> Self:
        return self

    def _leave(self, failed: bool) -> None:
        self.program.close()


class _Chaos:
    """One run.

    Args:
      cluster: whose tasks fail.
      folder: where the checkpoint is.
      outcome: where findings are noted.
      rng: decides what fails, and when.
    """

    def __init__(
        self, cluster: ProcessCluster, folder: Path, outcome: CountOutcome, rng: random.Random
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._outcome = outcome
        self._rng = rng
        self._stack = ExitStack()
        self._working = self._start()
        self._points = {
            "worker": itertools.cycle(WORKER_POINTS),
            "ps": itertools.cycle(PS_POINTS),
        }

    def _start(self) -> _Coordinator:
        coordinator = _Coordinator(self._cluster, self._folder, self._outcome.effects)
        return self._stack.enter_context(coordinator)

    def run(self, faults: list[str]) -> None:
        """Lets the faults happen, each of them while closures run, and ends in peace."""
        with self._stack:
            self._until("after")  # there is a checkpoint now
            for fault in faults:
                self._until("scheduled")
                time.sleep(self._rng.uniform(0, LONGEST_PAUSE_S))
                getattr(self, f"_{fault}")()
                self._outcome.n_faults += 1
            for _ in range(2):
                self._until("after")

    def _until(self, key: str) -> None:
        """Checks what the coordinator says until it says this."""
        while key not in self._next():
            pass

    def _next(self) -> dict[str, Any]:
        """Checks what the coordinator says next."""
        for told in self._working.lines():
            if "after" in told:
                self._outcome.check(told)
            return told
        code = self._working.program.wait()
        raise AssertionError(f"the coordinator has ended with exit code {code}")

    def _worker_kills(self) -> None:
        index = self._rng.randrange(N_WORKERS)
        self._cluster.kill("worker", index)
        time.sleep(self._rng.uniform(0, LONGEST_PAUSE_S))
        self._cluster.restart("worker", index)

    def _ps_restarts(self) -> None:
        index = self._rng.randrange(N_PS)
        self._cluster.kill("ps", index)
        time.sleep(self._rng.uniform(0, LONGEST_PAUSE_S))
        self._cluster.restart("ps", index)

    def _worker_points(self) -> None:
        self._kill_at_point("worker", N_WORKERS)

    def _ps_points(self) -> None:
        self._kill_at_point("ps", N_PS)

    def _kill_at_point(self, job: str, n: int) -> None:
        """Starts a task anew that dies at a failpoint, and starts it again when it has died."""
        index, point = self._rng.randrange(n), next(self._points[job])
        skip = self._rng.randrange(N_PASSES.get(point, N_CLOSURES // 2))
        self._cluster.restart(job, index, {point: Kill(skip=skip)})
        working = self._working
        has_ended = lambda: self._cluster.exit_code(job, index) is not None  # noqa: E731
        while not has_ended():  # rounds go on until it has come there, and may not end after that
            wait_until(
                lambda: has_ended() or working.program.has_line(),
                f"{job} {index} at {point}",
                progress=lambda: cpu_time(working.program.pid),
            )
            if working.program.has_line():
                self._next()
        self._cluster.restart(job, index)

    def _coordinator_kills(self) -> None:
        self._working.program.kill()
        self._working = self._start()
        self._until("started")

    def _coordinator_stops(self) -> None:
        stopped = self._working
        stopped.program.pause()
        self._working = self._start()
        self._until("after")
        stopped.program.resume()
        self._until("after")
        if not any("fenced" in told for told in stopped.lines()):
            self._outcome.violations.append("a coordinator that was replaced did not notice it")
        if (code := stopped.program.wait()) != FENCED:
            self._outcome.violations.append(f"it ended with exit code {code}")


def run_coordinated(
    faults: Faults, seed: int, folder: Path, effects: str = "exactly_once"
) -> CountOutcome:
    """Lets tasks and coordinators fail while closures count on all parameter servers.

    Args:
      faults: what fails how often.
      seed: decides what fails when.
      folder: where the checkpoint is.
      effects: of the closures.
    """
    rng, outcome = random.Random(seed), CountOutcome(seed, effects)
    begun = time.monotonic()
    with ProcessCluster(ps=N_PS, workers=N_WORKERS) as cluster:
        _Chaos(cluster, folder, outcome, rng).run(faults.in_any_order(rng))
    outcome.seconds = time.monotonic() - begun
    return outcome
