"""The example, for a few updates, also with an actor and the learner killed on the way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scripts import run_script

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "actors_and_learner.py"
BATCH = 256
N_UPDATES = 15


def numbers(label: str, text: str) -> list[int]:
    """The numbers of the line that begins so."""
    (line,) = re.findall(rf"^{label}: (.*)$", text, re.MULTILINE)
    return [int(number) for number in re.findall(r"\d+", line)]


def test_it_learns_from_both_actors() -> None:
    _check_what_it_says()


@pytest.mark.long
def test_it_outlives_an_actor_and_the_learner() -> None:
    said = _check_what_it_says("--kill")
    for role in ("actor 0", "learner"):
        assert f"{role} was killed; another one takes its place" in said


def _check_what_it_says(*options: str) -> str:
    """Runs the example; what it prints of the elements of the queue must add up."""
    run = run_script(EXAMPLE, "--updates", str(N_UPDATES), *options)
    assert run.returncode == 0, run.stderr
    acknowledged = numbers("steps that the queue has acknowledged, of each actor", run.stdout)
    learnt = numbers("learnt from", run.stdout)
    (waiting,) = numbers("in the queue", run.stdout)
    assert min(learnt) > 0
    assert sum(learnt) >= N_UPDATES * BATCH
    # A learner takes no more than a batch with it; one was killed on the way and one in the end.
    assert sum(acknowledged) - sum(learnt) - waiting <= 2 * BATCH
    returns = [float(mean) for mean in re.findall(r"mean return +([\d.]+)", run.stdout)]
    assert returns[-1] > returns[0]
    return run.stdout
