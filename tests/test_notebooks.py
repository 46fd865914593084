"""The notebooks, run from top to bottom by a real kernel."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nbformat.NotebookNode:
    """Runs a notebook as a new user has it; a cell that fails raises."""
    monkeypatch.setenv("HOME", str(tmp_path))
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute(cwd=str(tmp_path))
    return notebook


def outputs(notebook: nbformat.NotebookNode) -> list[str]:
    """What the cells print and show, as text."""
    found = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output.get("text") or output["data"]["text/plain"] for output in found]


def losses(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"[\d.]+", text)]


@pytest.mark.filterwarnings("default")  # the kernel's own libraries warn
def test_from_jit_to_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, traced, here, difference, _, devices, there, seen, error = outputs(
        run("from_jit_to_a_cluster.ipynb", tmp_path, monkeypatch)
    )
    assert plain == traced
    assert losses(here)[-1] < 0.1
    assert float(difference.split()[-1]) < 1e-6
    assert "/job:ps/task:0" in devices
    assert losses(there) == pytest.approx(losses(here), abs=0.01)
    assert int(seen.split("%")[0]) > 95
    assert "in lost" in error
    assert "/job:worker/task:7" in error
