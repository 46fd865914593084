"""`Campaign`: the inputs that one kind of target is tried with, and until when."""

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
class Campaign:
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

    def numbers(self, thread: int = 0, n_threads: int = 1) -> Iterator[int]:
        """The numbers of the inputs of one thread, as long as there is time."""
        for number in range(self.first + thread, self.first + self.n, n_threads):
            if time.monotonic() > self.until:
                return
            yield number


class Try(Protocol):
    """Tries the inputs of one thread."""

    def __call__(self, campaign: Campaign, tally: Tally, thread: int, n_threads: int) -> Any: ...


def run(campaign: Campaign, attempt: Try) -> Tally:
    """Tries all inputs, `N_BESIDE` at a time."""
    tally = Tally(campaign.name, campaign.kept)
    n_threads = min(N_BESIDE, max(campaign.n, 1))
    with ThreadPoolExecutor(n_threads) as threads:
        tried = partial(_tried, attempt, campaign, tally, n_threads)
        list(threads.map(tried, range(n_threads)))
    if tally.n_inputs < campaign.n and not tally.violations:
        tally.counts["not tried in time"] = campaign.n - tally.n_inputs
    return tally.end()


def _tried(attempt: Try, campaign: Campaign, tally: Tally, n_threads: int, thread: int) -> None:
    try:
        attempt(campaign, tally, thread, n_threads)
    except Exception as error:
        tally.violate(f"the attempt itself failed: {type(error).__name__}: {error}")
