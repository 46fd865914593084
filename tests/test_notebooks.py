"""The notebooks, run from top to bottom by a real kernel."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def run(
    *names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[nbformat.NotebookNode]:
    """Runs notebooks at the same time, as a new user has them; a cell that fails raises."""
    notebooks = [nbformat.read(NOTEBOOKS / name, as_version=4) for name in names]
    run_each(notebooks, tmp_path, monkeypatch)
    return notebooks


def run_each(
    notebooks: list[nbformat.NotebookNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs notebooks at the same time, each in a kernel of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    clients = [
        NotebookClient(each, timeout=None, kernel_name="python3", coalesce_streams=True)
        for each in notebooks
    ]

    async def execute() -> None:
        await asyncio.gather(*(client.async_execute(cwd=str(tmp_path)) for client in clients))

    asyncio.run(execute())


def outputs(notebook: nbformat.NotebookNode) -> list[str]:
    """What the cells print and show, as text, without what is said on a slow machine of waits."""
    found = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [
        output.get("text") or output["data"]["text/plain"]
        for output in found
        if output.get("name") != "stderr"
    ]


def losses(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"[\d.]+", text)]


@pytest.mark.filterwarnings("default")  # the kernel's own libraries warn
def test_from_jit_to_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (notebook,) = run("from_jit_to_a_cluster.ipynb", tmp_path=tmp_path, monkeypatch=monkeypatch)
    plain, traced, here, difference, _, devices, there, seen, error = outputs(notebook)
    assert plain == traced
    assert losses(here)[-1] < 0.1
    assert float(difference.split()[-1]) < 1e-6
    assert "/job:ps/task:0" in devices
    assert losses(there) == pytest.approx(losses(here), abs=0.01)
    assert int(seen.split("%")[0]) > 95
    assert "in lost" in error
    assert "/job:worker/task:7" in error


@pytest.mark.filterwarnings("default")
def test_a_queue_between_two_notebooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loading, training = run(
        "load_csv_into_a_queue.ipynb",
        "train_from_a_queue.ipynb",
        tmp_path=tmp_path,
        monkeypatch=monkeypatch,
    )
    _, tasks, loaded, result = outputs(loading)
    devices, trained = outputs(training)
    assert "/job:ps/task:0" in tasks
    assert "/job:ps/task:0" in devices
    assert loaded.startswith("32000 rows read")
    assert "has seen 32000 rows" in result
    assert trained.startswith("32000 rows in 250 batches")
    assert losses(trained.split("losses:")[1])[-1] < 0.2
    assert int(result.splitlines()[1].split("%")[0]) > 95


@pytest.mark.filterwarnings("default")
def test_a_placement_strategy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (notebook,) = run("a_placement_strategy.ipynb", tmp_path=tmp_path, monkeypatch=monkeypatch)
    contention, memory, total = outputs(notebook)
    strategies = {"earliest_start", "round_robin", "heft", "etf_c", "single"}
    rows = contention.strip().splitlines()[2:]
    assert {line.split(" | ")[0].strip("| ") for line in rows} == strategies
    assert "bytes on device" in memory.strip().splitlines()[-1]
    assert float(total) == 64**3
    (cell,) = (cell.source for cell in notebook.cells if cell.source.startswith("def "))
    assert len(cell.splitlines()) <= 20


@pytest.mark.filterwarnings("default")
def test_placements_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (notebook,) = run("placements_compared.ipynb", tmp_path=tmp_path, monkeypatch=monkeypatch)
    cluster, variable, placement, times, trace = outputs(notebook)
    assert "3 of 3 tasks up" in cluster
    assert "Dense_0/bias" in variable
    assert placement.endswith("operations on 2 devices>")
    assert [line[:22].strip() for line in times.splitlines()] == [
        "one worker",
        "two workers",
        "beside the variables",
    ]
    assert all(number > 0 for number in losses(times))
    assert "on 3 devices" in trace
    html = [
        output["data"]["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.output_type == "execute_result"
    ]
    assert "Classifier/Dense_0" in html[2]
    assert "update_Dense_0" in html[2]
    assert 'class="op span wait"' in html[3]


@pytest.mark.filterwarnings("default")
def test_a_report_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (notebook,) = run("a_report_read.ipynb", tmp_path=tmp_path, monkeypatch=monkeypatch)
    report, edges, waiting, figures, missed = outputs(notebook)
    assert "of 20 steps" in report
    assert [line.split(",")[0].strip() for line in edges.splitlines()[:2]] == ["5.12 MB a step"] * 2
    assert any("on /job:ps/task:0/device:CPU:0 for" in line for line in waiting.splitlines())
    slow, quick = figures.splitlines()
    assert slow.endswith("10.24 MB a step")
    assert quick.endswith("0.13 MB a step")
    assert [line.split()[1] for line in missed.splitlines()] == ["40", "40"]
    for name in ("slow", "quick"):
        assert "made at" in (tmp_path / f"{name}.html").read_text()


@pytest.mark.filterwarnings("default")
def test_state_outlives_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = nbformat.read(NOTEBOOKS / "state_that_outlives_the_kernel.ipynb", as_version=4)
    starts = [cell.source.split("\n")[0] for cell in whole.cells]
    restart = starts.index("## Restart the kernel")
    halves = [
        nbformat.v4.new_notebook(cells=cells, metadata=whole.metadata)
        for cells in (whole.cells[:restart], whole.cells[restart:])
    ]
    for half in halves:
        run_each([half], tmp_path, monkeypatch)
    (_, before), (_, found, after, stopped) = map(outputs, halves)
    assert before.startswith("20 steps")
    assert found.split(", loss")[0].split(", slope")[0] == "20 steps"
    assert before.split("slope ")[1][:4] == found.split("slope ")[1][:4]
    assert found.endswith("100 points are left\n")
    assert after.startswith("30 steps")
    assert after.endswith("0 points are left\n")
    assert "/job:ps/task:0 stops" in stopped
