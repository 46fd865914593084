"""What a process and a cluster take, measured again and again, and whether it grows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

WARM = 0.4
"""The part of a run in which caches fill, which does not count."""

MOST_KB = 1024.0
"""How much the memory of a process may grow in 100,000 steps, in KiB."""

SLACK: Mapping[str, float] = {
    "fds": 3,
    "threads": 3,
    "segments": 2,
    "files": 4,
    "variables": 1,
    "usage": 1,  # one variable moves
}
"""By how much other figures may differ between the middle and the end of a run."""


@dataclass(frozen=True)
class Sample:
    """The figures at one moment.

    Attributes:
      n_steps: how many steps have ended by then.
      figures: by the name of the process, or of the cluster, and of the figure.
    """

    n_steps: int
    figures: Mapping[tuple[str, str], float]


def of_process(pid: int) -> dict[str, float]:
    """The memory of a process in KiB, its threads, open files and mapped memory segments."""
    root = Path(f"/proc/{pid}")
    status = (root / "status").read_text()
    found = {
        name: float(re.findall(rf"^{field}:\s+(\d+)", status, re.M)[0])
        for name, field in (("memory", "VmRSS"), ("threads", "Threads"))
    }
    maps = (root / "maps").read_text().splitlines()
    segments = sum("/dev/shm/" in line or "memfd:" in line for line in maps)
    return found | {"fds": len([*(root / "fd").iterdir()]), "segments": segments}


def growth(samples: Sequence[Sample]) -> list[str]:
    """Says what has grown after the caches had filled; nothing where all is flat.

    Memory is a line through the samples, as single ones differ by what is collected next; other
    figures are the medians of the first and the last third.
    """
    warm = samples[int(len(samples) * WARM) :]
    names = sorted(set.intersection(*({*one.figures} for one in warm)))
    found = []
    for where, name in names:
        values = np.array([one.figures[where, name] for one in warm])
        if name == "memory":
            slope = per_100_000(warm, where)
            if slope > MOST_KB:
                found.append(f"{where}: memory grows by {slope:.0f} KiB in 100,000 steps")
            continue
        third = max(len(values) // 3, 1)
        before, after = float(np.median(values[:third])), float(np.median(values[-third:]))
        if after > before + SLACK.get(name, 0):
            found.append(f"{where}: {name} grew from {before:g} to {after:g}")
    return found


def per_100_000(samples: Sequence[Sample], where: str) -> float:
    """How many KiB the memory of a process grows in 100,000 steps, by least squares."""
    steps = np.array([one.n_steps for one in samples], float)
    values = np.array([one.figures[where, "memory"] for one in samples])
    if not np.ptp(steps):
        return 0.0
    return float(np.polyfit(steps - steps[0], values, 1)[0]) * 1e5
