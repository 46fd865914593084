"""Schedules in several processes, some at a time."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import NamedTuple

from tests.simulation.loop import collect
from tests.simulation.schedules import Outcome, run_schedules

_N_AT_A_TIME = 25
_N_WARM = 20
"""After how many schedules every program is compiled that there is."""


class Batch(NamedTuple):
    """Schedules that were run.

    Attributes:
      n: how many.
      cpu_s: the processor time that they took, in seconds.
      failed: those that failed.
    """

    n: int
    cpu_s: float
    failed: list[Outcome]


def run_batches(first: int, last: int, seconds: float | None, jobs: int) -> Iterator[Batch]:
    """Runs schedules until there are no more, or the time is over.

    Args:
      first, last: the first seed, and the one after the last.
      seconds: for how long to begin batches; None for all seeds.
      jobs: how many processes run them.
    """
    context = multiprocessing.get_context("spawn")
    starts = iter(range(first, last, _N_AT_A_TIME))
    running: list[Future[Batch]] = []
    until = float("inf") if seconds is None else time.monotonic() + seconds
    with ProcessPoolExecutor(jobs, context, _warm_up) as pool:
        while True:
            while len(running) < 2 * jobs and time.monotonic() < until:
                if (start := next(starts, None)) is None:
                    break
                end = min(start + _N_AT_A_TIME, last)
                running.append(pool.submit(_run_batch, start, end))
            if not running:
                return
            yield running.pop(0).result()


def _warm_up() -> None:
    logging.getLogger("jflow").setLevel(logging.CRITICAL)
    for _ in run_schedules(0, _N_WARM):
        pass
    collect()
    gc.freeze()  # what stays is not looked at again


def _run_batch(first: int, last: int) -> Batch:
    began = time.process_time()
    failed = [one for one in run_schedules(first, last) if one.violations]
    return Batch(last - first, time.process_time() - began, failed)
