"""The long run: `python -m tests.chaos`, for JFLOW_CHAOS_SECONDS with JFLOW_CHAOS_SEED.

Then tasks are killed in JFLOW_CHAOS_SAVES saves, and while closures count: JFLOW_CHAOS_WORKERS
workers, JFLOW_CHAOS_SERVERS parameter servers, JFLOW_CHAOS_COORDINATORS coordinators, and
JFLOW_CHAOS_POINTS tasks at each failpoint around an acknowledgement.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.chaos import run_chaos
from tests.chaos.coordinator import PS_POINTS, WORKER_POINTS, CountOutcome, Faults, run_coordinated
from tests.chaos.saves import SavesOutcome, run_saves

RUN_OF = 50
"""How many faults one cluster sees."""


def main() -> int:
    """Runs it, prints what came of it, and keeps the histories of a run that found something."""
    seconds = float(os.environ.get("JFLOW_CHAOS_SECONDS", "120"))
    seed = int(os.environ.get("JFLOW_CHAOS_SEED", random.randrange(2**32)))
    folder = Path(tempfile.mkdtemp(prefix="jflow-chaos-"))
    outcome = run_chaos(seconds, seed, folder)
    print(outcome)
    for violation in outcome.findings.violations:
        print(f"  {violation}")
    if outcome.findings.violations:
        print(f"The histories are in {folder}")
        return 1
    for history in folder.iterdir():
        history.unlink()
    runs: list[SavesOutcome | CountOutcome] = []
    runs.append(run_saves(_number("SAVES", 200), seed, folder))
    print(runs[-1])
    for number, faults in enumerate(_faults()):
        place = folder / f"counts-{number}"
        place.mkdir()
        runs.append(run_coordinated(faults, seed + number, place))
        print(runs[-1], flush=True)
    violations = [violation for run in runs for violation in run.violations]
    for violation in violations:
        print(f"  {violation}")
    if violations:
        print(f"The checkpoints are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _faults() -> Iterator[Faults]:
    """What fails while closures count, a cluster each."""
    workers, servers = _number("WORKERS", 1000), _number("SERVERS", 50)
    coordinators, points = _number("COORDINATORS", 10), _number("POINTS", 20)
    for begun in range(0, workers, RUN_OF):
        yield Faults(worker_kills=min(RUN_OF, workers - begun))
    for begun in range(0, servers, RUN_OF):
        yield Faults(ps_restarts=min(RUN_OF, servers - begun))
    yield Faults(coordinator_kills=coordinators // 2, coordinator_stops=coordinators // 2)
    yield Faults(worker_points=points * len(WORKER_POINTS), ps_points=points * len(PS_POINTS))


def _number(name: str, default: int) -> int:
    return int(os.environ.get(f"JFLOW_CHAOS_{name}", default))


if __name__ == "__main__":
    sys.exit(main())
