"""The example of a replay gives the bits of the run."""

from __future__ import annotations

import re
from pathlib import Path

from tests.scripts import run_script

EXAMPLE = Path(__file__).parents[2] / "examples" / "replay_a_run.py"


def test_a_run_with_a_killed_worker_is_computed_again() -> None:
    run = run_script(EXAMPLE, "--steps", "120")
    assert run.returncode == 0, run.stderr
    found = re.search(r"(\d+) updates were computed again; the same bits: True", run.stdout)
    assert found is not None, run.stdout
    assert int(found[1]) >= 120
    assert re.search(r"update \d+ missed \d+; accuracy before it 0\.\d+", run.stdout)
