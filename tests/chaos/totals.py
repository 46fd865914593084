"""What all long runs have killed so far: one record a run in `bench/chaos.jsonl`, and a table."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

PATH = Path("bench/chaos.jsonl")

MODES = ("exactly_once", "at_least_once", "")
"""The effects of closures; without a name what counts in no closures."""

HEAD = """\
| | closures, exactly once | closures, at least once | queues and saves |
|---|---:|---:|---:|
"""

SUMS = {
    "n_rounds": "rounds, or saves",
    "n_rerun": "closures run again",
    "n_doubled": "increments doubled",
}
"""What records are summed up by, and the rows of the table."""

_ENDS = ("runs", "minutes", *SUMS.values(), "violations")
"""The last rows."""


@dataclass(frozen=True)
class ChaosRecord:
    """One run.

    Attributes:
      date: when it ended.
      commit: what was run.
      mode: the effects of closures; "" where there are none.
      seed: what it depended on.
      faults: how often what has failed.
      seconds: how long it took.
      n_rounds: rounds of closures that were checked, or saves.
      n_rerun: closures that ran again because their worker was lost.
      n_doubled: increments beyond those that were scheduled.
      violations: what was wrong.
    """

    date: str
    commit: str
    mode: str
    seed: int
    faults: Mapping[str, int]
    seconds: float
    n_rounds: int = 0
    n_rerun: int = 0
    n_doubled: int = 0
    violations: tuple[str, ...] = ()


def now() -> str:
    """The time, as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def commit() -> str:
    """The commit that is checked out; "" if that is not known."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def append(record: ChaosRecord, path: Path = PATH) -> None:
    """Adds a record."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")


def load(path: Path = PATH) -> list[ChaosRecord]:
    """All records; none where there is no file."""
    if not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [ChaosRecord(**one | {"violations": tuple(one["violations"])}) for one in found]


def table(records: Iterable[ChaosRecord]) -> str:
    """The totals in Markdown: what has failed how often, and what came of it."""
    of_mode: dict[str, list[ChaosRecord]] = {mode: [] for mode in MODES}
    for record in records:
        of_mode[record.mode].append(record)
    columns = [_totals(of_mode[mode]) for mode in MODES]
    names = [*sorted({name for one in columns for name in one} - set(_ENDS)), *_ENDS]
    rows = [[name, *(f"{one[name]:,}" for one in columns)] for name in names]
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def points(records: Iterable[ChaosRecord]) -> dict[str, int]:
    """How often tasks were killed at which failpoint."""
    total: Counter[str] = Counter()
    for record in records:
        total.update({name: n for name, n in record.faults.items() if " at " in name})
    return dict(sorted(total.items()))


def _totals(records: list[ChaosRecord]) -> Counter[str]:
    """What some runs add up to, by the names of rows."""
    found: Counter[str] = Counter()
    for record in records:
        for name, times in record.faults.items():
            found[_kind(name)] += times
        for name, row in SUMS.items():
            found[row] += getattr(record, name)
        found["violations"] += len(record.violations)
        found["runs"] += 1
    found["minutes"] = round(sum(record.seconds for record in records) / 60)
    return found


def _kind(name: str) -> str:
    """The kind of a fault; failpoints of a job are one."""
    job, at, _ = name.partition(" at ")
    return f"{job} killed at a failpoint" if at else name.replace("_", " ")
