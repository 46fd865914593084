"""What the kit promises to projects that use it: an example project, and its page."""

from __future__ import annotations

import re
from pathlib import Path

from jflow.testing import run_program

ROOT = Path(__file__).parents[3]
PROJECT = ROOT / "examples" / "user_project"
PAGE = ROOT / "docs" / "testing.md"


def test_the_tests_of_a_users_project_pass(tmp_path: Path) -> None:
    """They are copied: what they need is in the package and in the project itself."""
    for path in PROJECT.rglob("*.py"):
        copy = tmp_path / path.relative_to(PROJECT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "tests"]
    done = run_program(command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    n_passed = re.search(r"(\d+) passed", done.stdout)
    assert n_passed
    assert int(n_passed[1]) >= 6, "each backend, and a failure"


def test_the_page_shows_code_that_is_in_the_project_or_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    program = tmp_path / "test_page.py"
    program.write_text("\n\n".join(blocks))
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["jflow.testing.fixtures"]\n')
    done = run_program(["-m", "pytest", "-q", "-p", "no:cacheprovider", str(program)], cwd=tmp_path)
    assert done.returncode == 0, done.stdout
