"""`Part`: which inputs one part of a fuzz run has, and until when."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tests.fuzz.mutations import Mutator
from tests.fuzz.tally import Tally

N_BESIDE = 2
"""How many inputs are tried at a time: as many as there are cores on a small machine."""


@dataclass(frozen=True)
class Part:
    """Inputs that follow from a seed and their numbers.

    Attributes:
      name: what the inputs are.
      seed: that of the run.
      n: how many there are.
      until: when no more are begun, by `time.monotonic`.
      kept: where inputs are written that something went wrong with.
      first: the number of the first one.
    """

    name: str
    seed: int
    n: int
    until: float
    kept: Path
    first: int = 0

    def mutator(self, number: int) -> Mutator:
        """What mutates the input with this number."""
        return Mutator(f"{self.seed}/{self.name}/{number}")

    def numbers(self, share: int = 0, shares: int = 1) -> Iterator[int]:
        """The numbers of the inputs of one share, as long as there is time."""
        for number in range(self.first + share, self.first + self.n, shares):
            if time.monotonic() > self.until:
                return
            yield number


class Try(Protocol):
    """Tries the inputs of one share of a part."""

    def __call__(self, part: Part, tally: Tally, share: int, shares: int) -> Any: ...


def run(part: Part, attempt: Try) -> Tally:
    """Tries all inputs of a part, `N_BESIDE` at a time."""
    tally = Tally(part.name, part.kept)
    shares = min(N_BESIDE, max(part.n, 1))
    with ThreadPoolExecutor(shares) as threads:
        tried = partial(_tried, attempt, part, tally, shares)
        list(threads.map(tried, range(shares)))
    if tally.n_inputs < part.n and not tally.violations:
        tally.counts["not tried in time"] = part.n - tally.n_inputs
    return tally.end()


def _tried(attempt: Try, part: Part, tally: Tally, shares: int, share: int) -> None:
    try:
        attempt(part, tally, share, shares)
    except Exception as error:
        tally.violate(f"the attempt itself failed: {type(error).__name__}: {error}")
