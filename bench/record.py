"""`bench/results.json`: what was measured last, each group with its own day and machine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Record:
    """One group's figures.

    Attributes:
      date: the day of the run.
      machine: cores and versions.
      figures: value by name, in seconds or bytes.
    """

    date: str
    machine: str
    figures: dict[str, float]


def load(path: Path) -> dict[str, Record]:
    """Records by group; none where there is no file."""
    if not path.exists():
        return {}
    return {name: Record(**fields) for name, fields in json.loads(path.read_text()).items()}


def save(path: Path, records: dict[str, Record]) -> None:
    """Writes all of them."""
    document = {name: asdict(record) for name, record in records.items()}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
