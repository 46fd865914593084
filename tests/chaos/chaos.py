"""Clients of a queue on a real cluster that are killed at any moment, and what they saw."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import jflow as tf
from jflow.errors import DeadlineExceededError
from tests.chaos.checker import Findings, check
from tests.chaos.client import PlainClient
from tests.chaos.history import OK, Call, Recorder, read_calls

ROLES = ("producer", "consumer")
N_EACH = 2
LONGEST_LIFE_S = 1.0
DRAINED_S = 1.0


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
      seed: what it depended on, as far as chance is ours.
      seconds: how long clients worked.
      n_kills: clients that were killed.
      findings: what the histories show.
    """

    seed: int
    seconds: float
    n_kills: int
    findings: Findings

    def __str__(self) -> str:
        found = self.findings
        return (
            f"{self.seconds:.0f} s, seed {self.seed}: {self.n_kills} kills, "
            f"{found.n_acknowledged} elements in, {found.n_delivered} out, "
            f"{found.n_excused} excused by killed gets, {len(found.violations)} violations"
        )


def run_chaos(seconds: float, seed: int, folder: Path) -> Outcome:
    """Kills and replaces producers and consumers of a queue for a while, then checks it all.

    Args:
      seconds: how long.
      seed: decides which process is killed when, and what clients do.
      folder: where the histories are written.

    Raises:
      RuntimeError: if a client ends by itself.
    """
    with tf.LocalCluster(ps=1, workers=2) as cluster:
        targets = [cluster.target("worker", 0), cluster.target("worker", 1)]
        with _Crowd(targets, folder, random.Random(seed)) as crowd:
            n_kills = crowd.suffer(seconds)
        _drain(targets[0], folder / "drain")
    calls = [call for path in sorted(folder.iterdir()) for call in _calls_in(path)]
    return Outcome(seed, seconds, n_kills, check(calls))


class _Crowd:
    """The clients: some that work, and for each role one that can take over at once."""

    def __init__(self, targets: list[str], folder: Path, rng: random.Random) -> None:
        self._targets = targets
        self._folder = folder
        self._rng = rng
        self._n_started = 0
        self._processes = ExitStack()
        self._working: list[_Client] = []
        self._spare: dict[str, _Client] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._end)
            first = [self._start(role) for role in ROLES for _ in range(N_EACH)]
            self._spare = {role: self._start(role) for role in ROLES}
            for client in first:
                self._working.append(client.begin())
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def suffer(self, seconds: float) -> int:
        """Kills clients for a while; gives how many."""
        deadline = time.monotonic() + seconds
        n_kills = 0
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, self._rng.uniform(0.0, LONGEST_LIFE_S)))
            victim = self._working.pop(self._rng.randrange(len(self._working)))
            victim.kill()
            n_kills += 1
            self._working.append(self._spare[victim.role].begin())
            self._spare[victim.role] = self._start(victim.role)
        return n_kills

    def _start(self, role: str) -> _Client:
        self._n_started += 1
        number = self._n_started
        target = self._rng.choice(self._targets)
        history = self._folder / f"{role}-{number}"
        seed = self._rng.randrange(2**32)
        return _Client(role, number, target, history, seed)

    def _end(self) -> None:
        for client in [*self._working, *self._spare.values()]:
            client.kill()


class _Client:
    """The process of a client."""

    def __init__(self, role: str, number: int, target: str, history: Path, seed: int) -> None:
        self.role = role
        arguments = [role, str(number), target, str(history), str(seed)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.client", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self) -> Self:
        """Lets it work, as soon as it is ready."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"a {self.role} did not start; see its words on standard error")
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self

    def kill(self) -> None:
        """Kills it at whatever it does."""
        ended_by_itself = self._process.poll() is not None
        with self._process:
            self._process.kill()
        if ended_by_itself:
            raise RuntimeError(f"a {self.role} ended by itself; see its words on standard error")


def _drain(target: str, history: Path) -> None:
    """Takes what is left, until nothing more comes."""
    recorder = Recorder(history)
    client = PlainClient(target)
    while True:
        recorder.invoke_get(1)
        try:
            recorder.end_get(OK, client.get(1, DRAINED_S))
        except DeadlineExceededError:
            break
    client.close()
    recorder.close()


def _calls_in(history: Path) -> list[Call]:
    return [*read_calls(history.read_text().splitlines())]
