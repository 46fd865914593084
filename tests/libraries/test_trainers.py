"""The examples of Equinox and Keras, as a user runs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scripts import run_script

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "options", "file"),
    [
        ("equinox", ["--steps", "200"], "digits.eqx"),
        ("keras", ["--epochs", "6"], "digits.keras"),
    ],
)
def test_the_example_trains_and_writes_its_model(
    name: str, options: list[str], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    pytest.importorskip(name)
    run = run_script(EXAMPLES / f"train_{name}.py", *options, "--path", str(tmp_path / file))
    assert run.returncode == 0, run.stderr
    (accuracy,) = re.findall(r"^accuracy (.*)$", run.stdout, re.MULTILINE)
    assert float(accuracy) > 0.9
    assert (tmp_path / file).stat().st_size > 0
