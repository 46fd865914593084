"""The example of scheduled functions, on processes that are told their roles by TF_CONFIG."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts import run_script

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "scheduled_functions.py"


def test_both_programs_run_on_processes_that_are_started_by_environment_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    run = run_script(EXAMPLE)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["element: 3", "counter: 1 after one function, 2 after two"]
