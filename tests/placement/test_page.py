"""The code of docs/placement.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jflow.schedule.strategies import OPTIONAL, STRATEGIES

PAGE = (Path(__file__).parents[2] / "docs" / "placement.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_names_every_strategy() -> None:
    assert {*re.findall(r'"(\w+)"', PAGE.split("## A strategy")[0])} == {
        *STRATEGIES,
        *OPTIONAL,
        "rules",
    }


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs(number) -> None:
    exec("\n".join(BLOCKS[: number + 1]), {})  # later blocks use the imports of the first
