"""The long runs: `python -m tests.chaos`, with JFLOW_CHAOS_SEED.

Producers and consumers of a queue are killed for JFLOW_CHAOS_SECONDS, then tasks in
JFLOW_CHAOS_SAVES saves, JFLOW_CHAOS_LOOPS workers whose loops run, and tasks while closures count.
In exactly-once mode these are JFLOW_CHAOS_WORKERS workers, JFLOW_CHAOS_SERVERS parameter servers,
JFLOW_CHAOS_COORDINATORS coordinators, and JFLOW_CHAOS_POINTS tasks at each failpoint around an
acknowledgement; in the default mode, JFLOW_CHAOS_DEFAULT workers. A number of 0 leaves a part out.

Each run adds a record to `bench/chaos.jsonl`; the totals of all of them are printed in the end.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.chaos import Least, Outcome, run_chaos
from tests.chaos.coordinator import FEW, MANY, run_coordinated
from tests.chaos.counts import AT_LEAST_ONCE, EXACTLY_ONCE, CountOutcome
from tests.chaos.faults import PS_POINTS, WORKER_POINTS, Faults
from tests.chaos.loops import LoopsOutcome, run_loops
from tests.chaos.saves import SavesOutcome, run_saves
from tests.chaos.totals import ChaosRecord, append, commit, load, now, points, table

RUN_OF = 50
"""How many faults one cluster sees."""

TIMES_OF = 10
"""How often tasks of one cluster are killed at each failpoint."""


def main() -> int:
    """Runs it, prints what came of it, and keeps the files of runs that found something."""
    seed = int(os.environ.get("JFLOW_CHAOS_SEED", random.randrange(2**32)))
    folder = Path(tempfile.mkdtemp(prefix="jflow-chaos-"))
    n_violations = 0
    for run, kept in _runs(seed, folder):
        for violation in run.violations:
            print(f"  {violation}", flush=True)
        n_violations += len(run.violations)
        append(run)
        if not run.violations:
            shutil.rmtree(kept)
    print(table(load()))
    for name, times in points(load()).items():
        print(f"{times:4} {name}")
    if n_violations:
        print(f"Histories and checkpoints are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _runs(seed: int, folder: Path) -> Iterator[tuple[ChaosRecord, Path]]:
    """Runs one part after the other; gives its record and its files."""
    seconds = float(os.environ.get("JFLOW_CHAOS_SECONDS", "120"))
    if seconds:
        place = _made(folder / "queue")
        yield _of_queue(run_chaos(Least(seconds), seed, place)), place
    if n_saves := _number("SAVES", 200):
        place, begun = _made(folder / "saves"), time.monotonic()
        yield _of_saves(run_saves(n_saves, seed, place), time.monotonic() - begun), place
    if n_loops := _number("LOOPS", 100):
        place, begun = _made(folder / "loops"), time.monotonic()
        yield _of_loops(run_loops(n_loops, seed), time.monotonic() - begun), place
    for number, (faults, effects, n_closures) in enumerate(_faults()):
        place = _made(folder / f"counts-{number}")
        outcome = run_coordinated(faults, seed + number, place, effects, n_closures)
        yield _of_counts(outcome), place


def _faults() -> Iterator[tuple[Faults, str, int]]:
    """What fails while which closures count, a cluster each."""
    sizes = itertools.cycle([FEW, MANY])
    for n in _pieces(_number("WORKERS", 1000), RUN_OF):
        yield Faults(worker_kills=n), EXACTLY_ONCE, next(sizes)
    for n in _pieces(_number("DEFAULT", 1000), RUN_OF):
        yield Faults(worker_kills=n), AT_LEAST_ONCE, next(sizes)
    for n in _pieces(_number("SERVERS", 50), RUN_OF):
        yield Faults(ps_restarts=n), EXACTLY_ONCE, next(sizes)
    for n in _pieces(_number("COORDINATORS", 10), RUN_OF):
        stops = n // 2
        faults = Faults(coordinator_kills=n - stops, coordinator_stops=stops)
        yield faults, EXACTLY_ONCE, next(sizes)
    for n in _pieces(_number("POINTS", 20), TIMES_OF):
        yield Faults(worker_points=n * len(WORKER_POINTS)), EXACTLY_ONCE, next(sizes)
    for n in _pieces(_number("POINTS", 20), TIMES_OF):
        yield Faults(ps_points=n * len(PS_POINTS)), EXACTLY_ONCE, next(sizes)


def _pieces(n: int, most: int) -> Iterator[int]:
    """A number in pieces."""
    for begun in range(0, n, most):
        yield min(most, n - begun)


def _of_queue(outcome: Outcome) -> ChaosRecord:
    print(outcome, flush=True)
    faults = {"clients of a queue": outcome.n_kills}
    found = tuple(outcome.findings.violations)
    return ChaosRecord(now(), commit(), "", outcome.seed, faults, outcome.seconds, violations=found)


def _of_saves(outcome: SavesOutcome, seconds: float) -> ChaosRecord:
    print(outcome, flush=True)
    faults, found = {"tasks that save": outcome.n_kills}, tuple(outcome.violations)
    return ChaosRecord(
        now(), commit(), "", outcome.seed, faults, seconds, outcome.n_saves, violations=found
    )


def _of_loops(outcome: LoopsOutcome, seconds: float) -> ChaosRecord:
    print(outcome, flush=True)
    faults, found = {"workers in a loop": outcome.n_kills}, tuple(outcome.violations)
    return ChaosRecord(now(), commit(), "", outcome.seed, faults, seconds, violations=found)


def _of_counts(outcome: CountOutcome) -> ChaosRecord:
    print(outcome, flush=True)
    return ChaosRecord(
        now(),
        commit(),
        outcome.effects,
        outcome.seed,
        dict(outcome.faults),
        outcome.seconds,
        outcome.n_rounds,
        outcome.n_rerun,
        outcome.n_doubled,
        tuple(outcome.violations),
    )


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _number(name: str, default: int) -> int:
    return int(os.environ.get(f"JFLOW_CHAOS_{name}", default))


if __name__ == "__main__":
    sys.exit(main())
