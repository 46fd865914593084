"""A run of the fuzzer: `python -m tests.fuzz`, with JFLOW_FUZZ_SEED.

JFLOW_FUZZ_PROGRAMS mutated programs go to the process that validates programs, JFLOW_FUZZ_FILES
mutated graph files to importers, and to servers JFLOW_FUZZ_SERVERS programs, JFLOW_FUZZ_PLANS plans
and JFLOW_FUZZ_FRAMES frames. A number of 0 leaves one out; JFLOW_FUZZ_FIRST is the number of the
first input of each. After JFLOW_FUZZ_SECONDS no more inputs are begun.

No server and no importer may end, raise what is no error of jflow's, or grow. What did is printed,
with the files of the inputs; a run of the same seed has the same ones.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import files, programs, servers
from tests.fuzz.campaign import Campaign, Try, run
from tests.net.protocol.hosts import TOKEN

CAMPAIGNS: tuple[tuple[str, str, int, Try], ...] = (
    ("programs", "PROGRAMS", 100_000, programs.try_programs),
    ("graph files", "FILES", 10_000, files.try_files),
    ("programs of servers", "SERVERS", 2_000, servers.try_programs),
    ("plans", "PLANS", 2_000, servers.try_plans),
    ("frames", "FRAMES", 2_000, servers.try_frames),
)
"""Each campaign: its name, the variable of the number of inputs, that number, what tries them."""


def main() -> int:
    """Runs all parts, prints their counts, and keeps the inputs that found something."""
    os.environ |= {"JFLOW_TOKEN": TOKEN, "JFLOW_WAIT_NOTICE_S": "0"}
    seed = _number("SEED", random.randrange(2**32))
    until = time.monotonic() + _number("SECONDS", 1800)
    kept = Path(tempfile.mkdtemp(prefix="jflow-fuzz-"))
    print(f"JFLOW_FUZZ_SEED={seed}", flush=True)
    n_violations = 0
    for name, variable, default, attempt in CAMPAIGNS:
        if n := _number(variable, default):
            tally = run(Campaign(name, seed, n, until, kept, _number("FIRST", 0)), attempt)
            print(tally, flush=True)
            for violation in tally.violations:
                print(f"  {violation}", flush=True)
            n_violations += len(tally.violations)
    if n_violations:
        print(f"{n_violations} violations; the inputs are in {kept}")
        return 1
    shutil.rmtree(kept)
    return 0


def _number(name: str, default: int) -> int:
    return int(os.environ.get(f"JFLOW_FUZZ_{name}", default))


if __name__ == "__main__":
    sys.exit(main())
