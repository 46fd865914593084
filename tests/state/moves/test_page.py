"""The code of docs/placement.md on moving state runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

_PLACEMENT = (Path(__file__).parents[3] / "docs" / "placement.md").read_text()
PAGE = _PLACEMENT.partition("\n## Moving state\n")[2].partition("\n## ")[0]


def test_the_code_of_the_page_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(block, {})
