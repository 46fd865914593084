"""The example of a recommender on the ratings that the package RecBole ships."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.scripts import run_script

EXAMPLE = Path(__file__).parents[2] / "examples" / "recommender.py"
WHEELS = [*(Path(sys.prefix) / "data").glob("recbole-*.whl")]


@pytest.mark.skipif(not WHEELS, reason="make test-libraries downloads RecBole")
def test_it_predicts_ratings_of_movielens_better_than_the_mean() -> None:
    run = run_script(EXAMPLE, "--data", str(WHEELS[0]), "--epochs", "2")
    assert run.returncode == 0, run.stderr
    mean, *_, error = map(float, re.findall(r"error (?:of the mean )?(\d\.\d+)", run.stdout))
    assert mean == pytest.approx(1.115, abs=0.001)
    assert error < 0.98
