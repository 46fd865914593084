"""Schedules by hand: `python -m tests.simulation --seeds 0:1000`, or `--seed 7` to replay one."""

from __future__ import annotations

import argparse
import logging
import gc
import sys
import time

from tests.simulation.loop import collect
from tests.simulation.schedules import run_schedule


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", help="FIRST:AFTER_LAST")
    parser.add_argument("--seed", type=int, help="replays one schedule, with all of its events")
    args = parser.parse_args()
    logging.getLogger("jflow").setLevel(logging.CRITICAL)
    if args.seed is not None:
        return 1 if run_schedule(args.seed, print).violations else 0
    first, last = map(int, args.seeds.split(":"))
    n_failed = 0
    began = time.monotonic()
    for seed in range(first, last):
        outcome = run_schedule(seed)
        if seed == first:
            collect()
            gc.freeze()
        elif seed % 20 == 0:
            collect()
        if outcome.violations:
            n_failed += 1
            print(f"python -m tests.simulation --seed {seed}  # {outcome.told}")
            for one in outcome.violations:
                print(f"    {one}", flush=True)
    seconds = time.monotonic() - began
    print(f"{last - first} schedules in {seconds:.1f} s: {(last - first) / seconds:.1f}/s; {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
