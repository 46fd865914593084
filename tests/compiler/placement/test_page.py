"""The code of docs/placement.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jflow.compiler.schedule.strategies import OPTIONAL, STRATEGIES

PAGE = (Path(__file__).parents[3] / "docs" / "placement.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_names_every_strategy() -> None:
    assert {*re.findall(r'"(\w+)"', PAGE.split("## A strategy")[0])} == {
        *STRATEGIES,
        *OPTIONAL,
        "rules",
    }


def test_the_blocks_run_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # they write pictures
    names: dict[str, object] = {}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"block {number} of docs/placement.md", "exec"), names)
    assert len(BLOCKS) >= 5
    assert {path.name for path in tmp_path.iterdir()} == {"step.html", "step.svg"}
