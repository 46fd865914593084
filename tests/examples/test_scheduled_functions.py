"""The example of scheduled functions, on processes that are told their roles by TF_CONFIG."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "scheduled_functions.py"


def test_both_programs_run_on_processes_that_are_started_by_environment_variables() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    run = subprocess.run(
        [sys.executable, EXAMPLE], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["element: 3", "counter: 1 after one function, 2 after two"]
