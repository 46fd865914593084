"""Workers, parameter servers and coordinators that are killed while closures count."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from jflow.base.handles import Closing
from jflow.errors import UnavailableError
from jflow.testing import Kill, ProcessCluster, ProgramProcess, cpu_time, wait_until
from tests.chaos.coordinated import FENCED
from tests.chaos.counts import EXACTLY_ONCE, CountOutcome
from tests.chaos.faults import MOST_PASSES, N_PASSES, PS_POINTS, WORKER_POINTS, Faults

N_PS, N_WORKERS = 2, 3
PROGRAM = "tests.chaos.coordinated"
LONGEST_PAUSE_S = 0.3

FEW, MANY = 24, 80
"""Closures of a round: so few that they run one by one, and so many that most are in batches."""

MOST_AT_ONCE = 2
"""How many tasks are down at one time."""

MOST_LINES = 200
"""What a coordinator says, two lines a round, until a task must have come to its failpoint."""

Victim = tuple[str, int]
"""The job and index of a task."""

SERVERS: list[Victim] = [("ps", i) for i in range(N_PS)]
WORKERS: list[Victim] = [("worker", i) for i in range(N_WORKERS)]


class _Coordinator(Closing):
    """The process of a coordinator."""

    def __init__(self, cluster: ProcessCluster, settings: dict[str, Any]) -> None:
        command = ["-m", PROGRAM, json.dumps(settings)]
        self.program = ProgramProcess(command, zygote=cluster.zygote)

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it says, until it ends."""
        while line := self.program.read_line():
            yield json.loads(line)

    def _leave(self, failed: bool) -> None:
        self.program.close()


class _Restarts(Closing):
    """Kills tasks and starts them again in the background, a few at one time."""

    def __init__(self, cluster: ProcessCluster, outcome: CountOutcome) -> None:
        self._cluster = cluster
        self._outcome = outcome
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, "restarts")
        self._open: dict[Victim, Future[None]] = {}

    def begin(self, victims: list[Victim], rng: random.Random) -> None:
        """Kills one of some tasks now; returns while it is down, or starts."""
        while len(self._open) == MOST_AT_ONCE:
            wait(self._open.values(), return_when=FIRST_COMPLETED)
            self._forget_ended()
        self._forget_ended()
        victim = rng.choice([one for one in victims if one not in self._open])
        kill(self._cluster, victim, self._outcome)
        pause = rng.uniform(0, LONGEST_PAUSE_S)
        self._open[victim] = self._pool.submit(self._restart, victim, pause)

    def end(self) -> None:
        """Waits until all tasks serve."""
        wait(self._open.values())
        self._forget_ended()

    def _restart(self, victim: Victim, pause: float) -> None:
        time.sleep(pause)
        self._cluster.restart(*victim)

    def _forget_ended(self) -> None:
        for victim in [one for one, future in self._open.items() if future.done()]:
            self._open.pop(victim).result()

    def _leave(self, failed: bool) -> None:
        self._pool.shutdown()


def kill(cluster: ProcessCluster, victim: Victim, outcome: CountOutcome) -> None:
    """Kills a task, if it runs, and notes when."""
    job, index = victim
    if job == "ps":
        outcome.may_die(index, time.monotonic())
    cluster.kill(job, index)
    if job == "ps":
        outcome.has_died(index, time.monotonic())


class _Chaos:
    """One run.

    Args:
      cluster: whose tasks fail.
      settings: of the coordinators.
      outcome: where findings are noted.
      rng: decides what fails, and when.
    """

    def __init__(
        self,
        cluster: ProcessCluster,
        settings: dict[str, Any],
        outcome: CountOutcome,
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._outcome = outcome
        self._rng = rng
        self._stack = ExitStack()
        self._restarts = self._stack.enter_context(_Restarts(cluster, outcome))
        self._working = self._start()
        self._armed: dict[Victim, str] = {}
        self._points = {
            "worker": itertools.cycle(WORKER_POINTS),
            "ps": itertools.cycle(PS_POINTS),
        }

    def _start(self) -> _Coordinator:
        return self._stack.enter_context(_Coordinator(self._cluster, self._settings))

    def run(self, faults: Iterable[str]) -> None:
        """Lets the faults happen, most of them while closures run, and ends in peace."""
        with self._stack:
            self._until("after")  # there is a checkpoint now
            for fault in faults:
                if self._rng.random() < 0.5:  # else while what failed last is still down
                    self._until("scheduled")
                time.sleep(self._rng.uniform(0, LONGEST_PAUSE_S))
                self._hear()
                getattr(self, f"_{fault}")()
                if not fault.endswith("points"):
                    self._outcome.faults[fault] += 1
            while self._armed:
                self._until_one_has_died()
            self._restarts.end()
            for _ in range(2):
                self._until("after")

    def _until(self, key: str) -> None:
        """Checks what the coordinator says until it says this."""
        while key not in self._next():
            pass

    def _hear(self) -> None:
        """Checks what the coordinator has said already."""
        while self._working.program.has_line():
            self._next()

    def _next(self) -> dict[str, Any]:
        """Checks what the coordinator says next; meanwhile tasks die at failpoints."""
        program = self._working.program
        while not program.has_line():
            wait_until(
                lambda: self._dead() or program.has_line(),
                f"a line of the coordinator, or the end of {self._armed}",
                progress=lambda: cpu_time(program.pid),
            )
            for victim in self._dead():
                self._replace(victim)
        for told in self._working.lines():
            if "after" in told:
                self._outcome.check(told)
            return told
        code = program.wait()
        raise AssertionError(f"the coordinator has ended with exit code {code}")

    def _worker_kills(self) -> None:
        self._kill_one(WORKERS)

    def _ps_restarts(self) -> None:
        self._kill_one(SERVERS)

    def _worker_points(self) -> None:
        self._arm(WORKERS)

    def _ps_points(self) -> None:
        self._arm(SERVERS)

    def _kill_one(self, victims: list[Victim]) -> None:
        """Kills one of some tasks, none of which is to die at a failpoint then."""
        while self._armed:
            self._until_one_has_died()
        self._restarts.begin(victims, self._rng)

    def _arm(self, victims: list[Victim]) -> None:
        """Starts a task anew that dies at the next failpoint, once few others are about to."""
        self._restarts.end()
        most = min(MOST_AT_ONCE, len(victims) - 1)  # one lives, so that it is checked
        while len(self._armed) >= most:
            self._until_one_has_died()
        victim = self._rng.choice([one for one in victims if one not in self._armed])
        job, index = victim
        point = next(self._points[job])
        skip = self._rng.randrange(N_PASSES.get(point, MOST_PASSES))
        kill(self._cluster, victim, self._outcome)
        if job == "ps":
            self._outcome.may_die(index, time.monotonic())
        self._armed[victim] = point
        try:
            self._cluster.restart(*victim, {point: Kill(skip=skip)})
        except UnavailableError:  # the others were faster than its start
            if victim not in self._dead():
                raise

    def _until_one_has_died(self) -> None:
        """Lets rounds go on until a task has come to its failpoint, and is started again."""
        n_armed = len(self._armed)
        for _ in range(MOST_LINES):
            if len(self._armed) < n_armed:
                return
            self._next()
        raise AssertionError(f"in {MOST_LINES // 2} rounds none has died of {self._armed}")

    def _dead(self) -> list[Victim]:
        return [one for one in self._armed if self._cluster.exit_code(*one) is not None]

    def _replace(self, victim: Victim) -> None:
        """Starts a task again that has died at its failpoint."""
        job, index = victim
        if job == "ps":
            self._outcome.has_died(index, time.monotonic())
        self._outcome.faults[f"{job} at {self._armed.pop(victim)}"] += 1
        self._cluster.restart(*victim)

    def _coordinator_kills(self) -> None:
        self._working.program.kill()
        self._outcome.replace_coordinator()
        self._working = self._start()
        self._until("started")

    def _coordinator_stops(self) -> None:
        stopped = self._working
        stopped.program.pause()
        self._outcome.replace_coordinator()
        self._working = self._start()
        self._until("after")
        stopped.program.resume()
        self._until("after")
        if not any("fenced" in told for told in stopped.lines()):
            self._outcome.violations.append("a coordinator that was replaced did not notice it")
        if (code := stopped.program.wait()) != FENCED:
            self._outcome.violations.append(f"it ended with exit code {code}")


def run_coordinated(
    faults: Faults, seed: int, folder: Path, effects: str = EXACTLY_ONCE, n_closures: int = FEW
) -> CountOutcome:
    """Lets tasks and coordinators fail while closures count on all parameter servers.

    Args:
      faults: what fails how often.
      seed: decides what fails when.
      folder: where the checkpoint is.
      effects: of the closures.
      n_closures: how many of them a round has.
    """
    rng, outcome = random.Random(seed), CountOutcome(seed, effects, n_closures)
    begun = time.monotonic()
    with ProcessCluster(ps=N_PS, workers=N_WORKERS) as cluster:
        settings = {
            "cluster": cluster.cluster_spec.as_dict(),
            "checkpoint": str(folder / "model"),
            "n_closures": n_closures,
            "effects": effects,
            "save_every": faults.save_every,
        }
        try:
            _Chaos(cluster, settings, outcome, rng).run(faults.in_any_order(rng))
        except AssertionError as error:  # it hangs, or the coordinator has ended
            outcome.violations.append(f"it did not go on: {error}")
    outcome.seconds = time.monotonic() - begun
    return outcome
