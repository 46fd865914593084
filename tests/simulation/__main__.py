"""Schedules by hand, one process a core, or one of them again with all of its events.

    python -m tests.simulation --seeds 0:100000    # those of these seeds
    python -m tests.simulation --seconds 120       # for so long, from a seed that is new each time
    python -m tests.simulation --seed 7            # one, and every message of it

A schedule that fails is told by the line that replays it.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time

from tests.simulation.batches import run_batches
from tests.simulation.schedules import run_schedule


def main() -> int:
    """Runs schedules, and prints those that fail and the rate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, help="replays one schedule")
    parser.add_argument("--seeds", help="FIRST:AFTER_LAST")
    parser.add_argument("--seconds", type=float, help="for how long, with new seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many processes")
    args = parser.parse_args()
    if args.seed is not None:
        logging.getLogger("jflow").setLevel(logging.WARNING)
        return 1 if run_schedule(args.seed, print).violations else 0
    if args.seeds is None and args.seconds is None:
        parser.error("one of --seed, --seeds and --seconds is needed")
    return _run(args.seeds, args.seconds, args.jobs)


def _run(seeds: str | None, seconds: float | None, jobs: int) -> int:
    n, cpu_s, n_failed, began = 0, 0.0, 0, time.monotonic()
    first, last = map(int, seeds.split(":")) if seeds else (random.randrange(1 << 40), 1 << 50)
    print(f"schedules from seed {first}, by {jobs} processes", flush=True)
    for batch in run_batches(first, last, seconds, jobs):
        n, cpu_s = n + batch.n, cpu_s + batch.cpu_s
        for outcome in batch.failed:
            n_failed += 1
            print(outcome.report(), flush=True)
    took = time.monotonic() - began
    rate = f"{n / took:.1f} a second, {n / max(cpu_s, 1e-9):.1f} a second of a core"
    print(f"{n} schedules in {took:.0f} s ({rate}); {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
