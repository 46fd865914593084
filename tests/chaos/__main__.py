"""The long run: `python -m tests.chaos`, for JFLOW_CHAOS_SECONDS with JFLOW_CHAOS_SEED.

Then tasks are killed in JFLOW_CHAOS_SAVES saves.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.chaos import run_chaos
from tests.chaos.saves import run_saves


def main() -> int:
    """Runs it, prints what came of it, and keeps the histories of a run that found something."""
    seconds = float(os.environ.get("JFLOW_CHAOS_SECONDS", "120"))
    seed = int(os.environ.get("JFLOW_CHAOS_SEED", random.randrange(2**32)))
    folder = Path(tempfile.mkdtemp(prefix="jflow-chaos-"))
    outcome = run_chaos(seconds, seed, folder)
    print(outcome)
    for violation in outcome.findings.violations:
        print(f"  {violation}")
    if outcome.findings.violations:
        print(f"The histories are in {folder}")
        return 1
    for history in folder.iterdir():
        history.unlink()
    saves = run_saves(int(os.environ.get("JFLOW_CHAOS_SAVES", "200")), seed, folder)
    print(saves)
    for violation in saves.violations:
        print(f"  {violation}")
    if saves.violations:
        print(f"The checkpoint is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
