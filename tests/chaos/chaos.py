"""Clients of a queue on a real cluster that are killed at any moment, and what they saw."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from jflow.base.handles import Closing
from jflow.errors import DeadlineExceededError
from jflow.launch.zygote import Zygote
from jflow.testing import PATIENCE_S, ProcessCluster, ProgramProcess
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


@dataclass(frozen=True)
class Least:
    """What has to happen before a run may end, however long that takes on a busy machine.

    Attributes:
      seconds: how long clients work.
      n_kills: how many of them are killed.
      n_gets: how often elements come out.
    """

    seconds: float = 0.0
    n_kills: int = 0
    n_gets: int = 0


def run_chaos(least: Least, seed: int, folder: Path) -> Outcome:
    """Kills and replaces producers and consumers of a queue for a while, then checks it all.

    Args:
      least: for how long.
      seed: decides which process is killed when, and what clients do.
      folder: where the histories are written.

    Raises:
      RuntimeError: if a client ends by itself.
      AssertionError: if clients hang.
    """
    begun = time.monotonic()
    with ProcessCluster(ps=1, workers=2) as cluster:
        targets = [cluster.target("worker", 0), cluster.target("worker", 1)]
        with _Crowd(cluster.zygote, targets, folder, random.Random(seed)) as crowd:
            n_kills = crowd.suffer(least)
        seconds = time.monotonic() - begun
        _drain(targets[0], folder / "drain")
    calls = [call for path in sorted(folder.iterdir()) for call in _calls_in(path)]
    return Outcome(seed, seconds, n_kills, check(calls))


class _Crowd:
    """The clients: some that work, and for each role one that can take over at once."""

    def __init__(
        self, zygote: Zygote, targets: list[str], folder: Path, rng: random.Random
    ) -> None:
        self._zygote = zygote
        self._targets = targets
        self._folder = folder
        self._rng = rng
        self._n_started = 0
        self._processes = ExitStack()
        self._working: list[_Client] = []
        self._spare: dict[str, _Client] = {}

    def __enter__(self) -> Self:
        with self._processes:
            first = [self._start(role) for role in ROLES for _ in range(N_EACH)]
            self._spare = {role: self._start(role) for role in ROLES}
            self._working = [client.begin() for client in first]
            self._processes = self._processes.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    def suffer(self, least: Least) -> int:
        """Kills clients for a while; gives how many."""
        deadline = time.monotonic() + least.seconds
        n_kills = n_gets = 0
        since = time.monotonic()
        while time.monotonic() < deadline or n_kills < least.n_kills or n_gets < least.n_gets:
            time.sleep(self._rng.uniform(0.0, LONGEST_LIFE_S))
            victim = self._working.pop(self._rng.randrange(len(self._working)))
            victim.kill()
            n_kills += 1
            self._working.append(self._spare[victim.role].begin())
            self._spare[victim.role] = self._start(victim.role)
            if (now := _n_gets(self._folder)) > n_gets:
                n_gets, since = now, time.monotonic()
            assert time.monotonic() - since < PATIENCE_S, f"nothing comes out after {n_gets} gets"
        return n_kills

    def _start(self, role: str) -> _Client:
        self._n_started += 1
        number = self._n_started
        target = self._rng.choice(self._targets)
        history = self._folder / f"{role}-{number}"
        seed = self._rng.randrange(2**32)
        client = _Client(self._zygote, role, [str(number), target, str(history), str(seed)])
        return self._processes.enter_context(client)


class _Client(Closing):
    """The process of a client."""

    def __init__(self, zygote: Zygote, role: str, arguments: list[str]) -> None:
        self.role = role
        command = ["-m", "tests.chaos.client", role, *arguments]
        self._program = ProgramProcess(command, zygote=zygote)

    def begin(self) -> Self:
        """Lets it work, as soon as it is ready."""
        if self._program.read_line() != "ready":
            raise RuntimeError(f"a {self.role} did not start; see its words on standard error")
        self._program.write_line("go")
        return self

    def kill(self) -> None:
        """Kills it at whatever it does."""
        ended_by_itself = self._program.exit_code is not None
        self._program.close()
        if ended_by_itself:
            raise RuntimeError(f"a {self.role} ended by itself; see its words on standard error")

    def _leave(self, failed: bool) -> None:
        self._program.close()


def _n_gets(folder: Path) -> int:
    """How often elements have come out so far."""
    return sum(path.read_bytes().count(b" ok get ") for path in folder.glob("consumer-*"))


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
