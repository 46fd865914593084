"""README, as a newcomer reads it: installs the wheel, pastes the code, looks at the picture."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import jflow as tf
from bench.page import with_figures
from bench.record import load

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SCREEN = 25
"""Lines of the page, at most, before its first program."""

# Runs the blocks one after another, each as if it were pasted alone.
READER = """
import sys
import jflow
print(jflow.__file__)
for number, block in enumerate(sys.argv[1:]):
    print(f"-- block {number}", flush=True)
    jflow.reset_default_graph()
    exec(compile(block, f"block {number} of README.md", "exec"), {"__name__": "__main__"})
"""


def run(*command: str | Path, **options: object) -> str:
    """Runs a command to its end; what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def expected_version() -> str:
    """What `jflow --version` prints of this checkout; the commit only if Git says it here."""
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return f"jflow {tf.__version__}\n"
    commit = done.stdout.strip()
    return f"jflow {tf.__version__}" + (f" ({commit})" if commit else "") + "\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install .` builds."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.iterdir()
    return wheel


@pytest.fixture(scope="module")
def read(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sequence[str]]:
    """Installs the wheel in a fresh environment and runs all blocks there, in an empty folder.

    Returns:
      The folder, and what each block printed. What jflow depends on is this environment's.
    """
    folder = tmp_path_factory.mktemp("home")
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    (site,) = environment.glob("lib/*/site-packages")
    packages = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "dependencies.pth").write_text("\n".join(packages))
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel)
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    variables["HOME"] = str(folder)
    printed = run(python, "-c", READER, *BLOCKS, cwd=folder, env=variables)
    origin, *outputs = re.split(r"-- block \d+\n", printed)
    assert Path(origin.strip()).is_relative_to(site)
    version = run(environment / "bin" / "jflow", "--version", cwd=folder, env=variables)
    assert version == expected_version()
    return folder, outputs


def test_the_wheel_has_the_package_with_its_types_and_data_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {
        "jflow/py.typed",
        "jflow/cli/demo/digits.npz",
        "jflow/net/protocol/v1/plan_pb2.pyi",
    } <= names
    assert {name.split("/")[0] for name in names} == {
        "jflow",
        f"jflow-{tf.__version__}.dist-info",
    }


def test_each_block_runs_alone_and_prints_what_it_says(
    read: tuple[Path, Sequence[str]],
) -> None:
    _, outputs = read
    said = [re.findall(r"print\(.*\)\s+# ([^:\n]+)", block) for block in BLOCKS]
    assert [output.splitlines() for output in outputs] == said
    assert sum(map(len, said)) >= 1


def test_the_picture_is_what_the_first_program_saves(read: tuple[Path, Sequence[str]]) -> None:
    folder, _ = read
    drawn = (folder / "train.svg").read_text()
    kept = (ROOT / "docs" / "train.svg").read_text()
    assert drawn == kept, "run README's first program and copy its train.svg to docs/"


def test_the_first_screen_has_the_picture_and_how_to_install() -> None:
    screen = PAGE.split("```python")[0]
    assert screen.count("\n") <= SCREEN
    assert "pip install" in screen
    assert 'src="docs/train.svg"' in screen


def test_the_page_is_short() -> None:
    assert len(PAGE.split()) <= 600


def test_each_row_of_the_choice_has_a_figure_that_was_measured() -> None:
    """`make bench` writes them, from the results that are kept."""
    records = load(ROOT / "bench" / "results.json")
    assert with_figures(PAGE, records) == PAGE
    assert len(re.findall(r"^\| \*\*.*: [\d.]+ \S+, \S+ [\d.]+ \S+ \|$", PAGE, re.MULTILINE)) == 6
    with pytest.raises(LookupError, match="was not measured"):
        with_figures(PAGE, {name: one for name, one in records.items() if name != "peers"})
