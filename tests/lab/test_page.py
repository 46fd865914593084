"""The code of docs/lab.md on workloads runs as it stands, and the page names every workload."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jflow.lab.workloads import WORKLOADS

_LAB = (Path(__file__).parents[2] / "docs" / "lab.md").read_text()
PAGE = _LAB.partition("\n## Workloads\n")[2]
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_names_every_workload() -> None:
    assert re.findall(r"^\| `(\w+)` \| (?:W\d|the)", PAGE, re.MULTILINE) == [*WORKLOADS]


@pytest.mark.long
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(block) -> None:
    exec(block, {})
