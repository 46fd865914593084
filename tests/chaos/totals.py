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

HEAD = """\
| what failed | closures | times | runs | seconds | rounds, saves | rerun | doubled | violations |
|---|---|---:|---:|---:|---:|---:|---:|---:|
"""


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
    """The totals in Markdown, a row for each mixture of faults."""
    rows: dict[tuple[str, str], list[ChaosRecord]] = {}
    for record in records:
        kinds = " and ".join(sorted({_kind(name) for name in record.faults}))
        rows.setdefault((kinds, record.mode), []).append(record)
    return HEAD + "".join(_row(*key, rows[key]) for key in sorted(rows))


def points(records: Iterable[ChaosRecord]) -> dict[str, int]:
    """How often tasks were killed at which failpoint."""
    total: Counter[str] = Counter()
    for record in records:
        total.update({name: n for name, n in record.faults.items() if " at " in name})
    return dict(sorted(total.items()))


def _kind(name: str) -> str:
    """The kind of a fault; failpoints of a job are one."""
    job, at, _ = name.partition(" at ")
    return f"{job} killed at a failpoint" if at else name.replace("_", " ")


def _row(kinds: str, mode: str, records: list[ChaosRecord]) -> str:
    times = sum(sum(record.faults.values()) for record in records)
    seconds = sum(record.seconds for record in records)
    numbers = [
        *(times, len(records), round(seconds)),
        *(sum(getattr(one, name) for one in records) for name in _SUMS),
        sum(len(one.violations) for one in records),
    ]
    shown = " | ".join(f"{number:,}" for number in numbers)
    return f"| {kinds} | {mode.replace('_', ' ')} | {shown} |\n"


_SUMS = ("n_rounds", "n_rerun", "n_doubled")
