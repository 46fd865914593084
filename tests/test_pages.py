"""The pages for users, whose code must do what they say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import jflow as tf
from tests.scripts import run_script

DOCS = Path(__file__).parents[1] / "docs"


PAGES = {
    "concepts": 1,
    "decoupled": 1,
    "distribute": 3,
    "embeddings": 1,
    "errors": 3,
    "export": 2,
    "failures": 2,
    "features": 2,
    "graphs": 3,
    "loops": 2,
    "meshes": 1,
    "models": 1,
    "phrase_books": 4,
    "programs": 2,
    "queues": 4,
    "quickstart": 3,
    "recipes": 1,
    "replay": 1,
    "saving": 5,
    "training": 5,
    "troubleshooting": 2,
    "unknown_ranks": 2,
    "variables": 2,
    "watching": 1,
}
"""The number of programs of each page."""

ELSEWHERE = {"data", "lab", "placement", "testing", "tracing"}
"""Pages whose programs run in tests of their own."""


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
    printed = iter(done.stdout.splitlines())
    for said in re.findall(r"^ *print\(.*\)\s+# (.+)$", "\n".join(blocks), re.MULTILINE):
        assert said in printed, f"the page says {said!r}, printed was {done.stdout}"


def test_no_page_has_code_that_does_not_run() -> None:
    pages = {path.stem for path in DOCS.rglob("*.md") if "```python" in path.read_text()}
    assert pages == {*PAGES} | ELSEWHERE


def test_each_public_error_has_a_section() -> None:
    page = (DOCS / "errors.md").read_text()
    classes = {
        name
        for module in (tf.errors, tf, tf.train)
        for name in dir(module)
        if isinstance(value := getattr(module, name), type) and issubclass(value, Exception)
    }
    assert {*re.findall(r"^## (\w+Error)$", page, re.MULTILINE)} == classes


def test_each_extra_for_users_is_said_to_bring_something() -> None:
    page = (DOCS / "quickstart.md").read_text().split('<a id="extras">')[1].split("##")[0]
    with (DOCS.parent / "pyproject.toml").open("rb") as file:
        extras = {*tomllib.load(file)["project"]["optional-dependencies"]}
    said = {
        name for row in re.findall(r"^\| (`.*?) \|", page, re.M) for name in re.findall(r"\w+", row)
    }
    assert said == extras - {"browser", "dev", "docs", "libraries"}
