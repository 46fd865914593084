"""`Tally`: what became of the inputs of one campaign."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MIB = 1 << 20


@dataclass
class Tally:
    """Counts of what became of inputs, and what must not have happened; thread-safe.

    Args:
      name: that of the campaign.
      kept: where inputs are written that something went wrong with.

    Attributes:
      counts: how often each thing happened.
      violations: what must not have happened, as sentences.
    """

    name: str
    kept: Path
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    n_inputs: int = 0
    begun: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, outcome: str) -> None:
        """Counts what became of an input."""
        with self._lock:
            self.n_inputs += 1
            self.counts[outcome] += 1

    def violate(self, what: str, number: int | None = None, data: bytes = b"") -> None:
        """Notes what must not have happened, and keeps the input with this number."""
        with self._lock:
            if number is not None:
                file = self.kept / f"{self.name.replace(' ', '-')}-{number}"
                file.write_bytes(data)
                what = f"{self.name} {number} (kept as {file}): {what}"
            self.violations.append(what)

    def end(self) -> Tally:
        """Ends the measurement of time."""
        self.seconds = time.monotonic() - self.begun
        return self

    def __str__(self) -> str:
        rate = self.n_inputs / max(self.seconds, 1e-9)
        found = ", ".join(f"{n} {what}" for what, n in self.counts.most_common())
        took = f"{self.n_inputs} inputs in {self.seconds:.0f} s ({rate:.1f}/s)"
        return f"{self.name}: {took}: {found}; {len(self.violations)} violations"


class Growth:
    """Whether the memory of a process grows beyond a limit once it is warm.

    Args:
      pid: of the process; None for this one.
      limit: how much it may grow, in bytes.
      n_warm: after how many inputs it is warm.
    """

    def __init__(self, pid: int | None = None, limit: int = 400 * MIB, n_warm: int = 50) -> None:
        self._process = psutil.Process(os.getpid() if pid is None else pid)
        self._limit = limit
        self._n_left = n_warm
        self._warm = 0

    def check(self) -> str:
        """Looks after an input; returns what is wrong, or ""."""
        self._n_left -= 1
        if self._n_left > 0:
            return ""
        size: int = self._process.memory_info().rss
        self._warm = self._warm or size
        if size - self._warm <= self._limit:
            return ""
        self._warm, grown = size, size - self._warm
        return f"the memory of process {self._process.pid} has grown by {grown // MIB} MiB"
