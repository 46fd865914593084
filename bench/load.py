"""Many threads that call the same thing: as fast as they can, or at a rate that they offer."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Latencies = list[float]
"""How long each call took, in seconds."""


@dataclass(frozen=True)
class Load:
    """What a number of threads measured together.

    Attributes:
      latencies: of all their calls, ascending, in seconds.
      span_s: from the first call to the end of the last.
    """

    latencies: Latencies
    span_s: float

    @property
    def seconds_a_call(self) -> float:
        """The inverse of the throughput."""
        return self.span_s / len(self.latencies)

    def quantile(self, part: float) -> float:
        """The latency that this part of the calls did not exceed."""
        return self.latencies[min(int(part * len(self.latencies)), len(self.latencies) - 1)]


def closed_loop(call: Callable[[], Any], n_threads: int, span_s: float) -> Load:
    """Each thread makes its next call when the last has returned.

    Raises:
      Exception: the first that a call raised; there must be none.
    """

    def calls(ends: float, taken: Latencies) -> None:
        while (begun := time.perf_counter()) < ends:
            call()
            taken.append(time.perf_counter() - begun)

    return _threads(calls, n_threads, span_s)


def offered(call: Callable[[], Any], n_threads: int, rate: float, span_s: float) -> Load:
    """The threads together offer `rate` calls a second, at times of a Poisson process.

    A call that is late because its thread still waited for the last one counts from when it was
    due, so that a pause of the server is not hidden by the calls that it prevented.

    Raises:
      Exception: the first that a call raised; there must be none.
    """
    chosen = random.Random(0)
    seeds = iter([chosen.random() for _ in range(n_threads)])

    def calls(ends: float, taken: Latencies) -> None:
        intervals, due = random.Random(next(seeds)), time.perf_counter()
        while True:
            due += intervals.expovariate(rate / n_threads)
            if due >= ends:
                return
            ahead = due - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)  # waking up late is the system's, not the server's
            begun = time.perf_counter() if ahead > 0 else due
            call()
            taken.append(time.perf_counter() - begun)

    return _threads(calls, n_threads, span_s)


def _threads(calls: Callable[[float, Latencies], None], n_threads: int, span_s: float) -> Load:
    taken: list[Latencies] = [[] for _ in range(n_threads)]
    failures: list[Exception] = []
    begin = threading.Barrier(n_threads + 1)

    def run(own: Latencies) -> None:
        begin.wait()
        try:
            calls(time.perf_counter() + span_s, own)
        except Exception as error:  # raised below, in the thread that asked
            failures.append(error)

    threads = [threading.Thread(target=run, args=(own,), daemon=True) for own in taken]
    for thread in threads:
        thread.start()
    begin.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return Load(sorted(itertools.chain.from_iterable(taken)), time.perf_counter() - begun)
