"""The long run: `python -m tests.chaos`, for JFLOW_CHAOS_SECONDS with JFLOW_CHAOS_SEED."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.chaos import run_chaos


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
    folder.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
