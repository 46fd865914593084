"""The short run; `make chaos` is the long one."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.chaos import run_chaos


def test_no_element_is_lost_or_doubled_when_clients_are_killed(tmp_path: Path) -> None:
    outcome = run_chaos(5.0, seed=0, folder=tmp_path)
    assert not outcome.findings.violations, outcome
    assert outcome.n_kills >= 3
    assert outcome.findings.n_delivered > 50
