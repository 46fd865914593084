"""The code of docs/workloads.md runs as it stands, and the page names every workload."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jflow.lab.workloads import WORKLOADS

PAGE = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_names_every_workload() -> None:
    assert re.findall(r"^\| `(\w+)` \| (?:W\d|the)", PAGE, re.MULTILINE) == [*WORKLOADS]


@pytest.mark.long
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(block) -> None:
    exec(block, {})
