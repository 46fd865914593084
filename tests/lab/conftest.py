"""What several tests of the comparison of strategies use."""

from __future__ import annotations

import pytest

from jflow.compiler.schedule import simulate
from jflow.compiler.schedule.exact import Optimum
from jflow.errors import ResourceExhaustedError


@pytest.fixture
def no_proofs(monkeypatch) -> None:
    """The solver takes seconds, and has tests of its own."""

    def unauthenticated(problem, *, upper, seconds):
        if upper is None:
            raise ResourceExhaustedError("no placement was found in time")
        return Optimum(upper, simulate(problem, upper).makespan, 0.0)

    monkeypatch.setattr("jflow.lab.suite.scoring.optimal", unauthenticated)
    monkeypatch.setattr("jflow.lab.suite.scoring._NODES", 10)
