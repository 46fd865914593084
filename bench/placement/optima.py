"""Proves the optima of `jflow.lab.optima.cases` and keeps them: `make placement-optima`.

It goes on where an earlier run ended, and may take hours. Cases that took longer than the limit
keep the best schedule and bound, and are tried again by `--retry` with a higher one.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from jflow.lab import optima

PATH = Path(__file__).parent / "optima.json"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each case")
    parser.add_argument("--retry", action="store_true", help="cases that are not proven as well")
    parser.add_argument("--network", help="cases of this network model only")
    options = parser.parse_args()
    known = {each.case: each for each in optima.read_optima(PATH)}
    cases = [*optima.cases()]
    last = time.monotonic()
    for number, case in enumerate(cases):
        if options.network not in (None, case.network):
            continue
        if case in known and (known[case].is_proven or not options.retry):
            continue
        known[case] = optima.prove(case, seconds=options.seconds)
        if time.monotonic() > last + 20 or number + 1 == len(cases):
            last = time.monotonic()
            _write(known, cases)
            print(f"{number + 1} of {len(cases)}", flush=True)
    _write(known, cases)
    proven = sum(each.is_proven for each in known.values())
    print(f"{proven} of {len(cases)} proven")


def _write(known: dict, cases: list) -> None:
    """Also keeps what another process has written meanwhile."""
    for each in optima.read_optima(PATH):
        if each.case not in known or (each.is_proven and not known[each.case].is_proven):
            known[each.case] = each
    optima.write_optima(PATH, [known[case] for case in cases if case in known])


if __name__ == "__main__":
    main()
