"""The pages for users, whose code must do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scripts import run_script

DOCS = Path(__file__).parents[1] / "docs"


PAGES = {
    "distribute": 3,
    "export": 2,
    "programs": 2,
    "queues": 3,
    "saving": 4,
    "training": 4,
    "unknown_ranks": 2,
    "variables": 2,
}
"""The number of programs of each page."""


@pytest.mark.parametrize(("name", "n_blocks"), PAGES.items())
def test_the_code_of_the_page_runs(name: str, n_blocks: int, tmp_path: Path) -> None:
    page = (DOCS / f"{name}.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == n_blocks
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks))
    # A process of its own, as a user has: connections of other tests may still be open in this one.
    done = run_script(program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
