"""`jflow bench placement`, as a user types it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jflow.cli.main import main
from jflow.compiler.schedule.exact import Optimum
from jflow.compiler.schedule.strategies import STRATEGIES

MINE = """\
def place(graph, devices, costs, constraints):
    chosen, free = {}, [0.0] * len(devices)
    for i in graph.order:
        allowed = constraints.allowed.get(constraints.classes[i], range(len(devices))) if (
            constraints.classes
        ) else range(len(devices))
        device = min(allowed, key=lambda each: free[each] + costs.seconds[i, each])
        free[device] += costs.seconds[i, device]
        chosen[graph.operations[i]] = devices[device]
    return chosen
"""


def test_twenty_lines_and_one_command_give_the_whole_table(tmp_path: Path) -> None:
    assert len(MINE.splitlines()) <= 20
    (tmp_path / "mine.py").write_text(MINE)
    command = [sys.executable, "-m", "jflow", "bench", "placement", "--quick"]
    command += ["--strategies", "mine:place,heft,single", "--workloads", "gaussian_elimination"]
    done = subprocess.run(
        [*command, "--devices", "2", "--output", "results"],
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("results/README.md: ")
    assert "3 strategies" in line
    assert not done.stderr  # no progress in a file
    page = (tmp_path / "results" / "README.md").read_text()
    assert page.count("| mine:place | ") == page.count("| heft | ") >= 5
    assert "## Refused" not in page


def _unauthenticated(problem, *, upper, seconds):
    return Optimum(upper, 1.0, 0.0)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code, and the last line of what the command prints."""
    code = main(["bench", "placement", "--quick", "--workloads", "layered", *arguments])
    captured = capsys.readouterr()
    return code, (captured.err if code == 2 else captured.out).splitlines()[-1]


def test_the_exit_code_says_whether_auto_lost_to_one_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    losing = STRATEGIES | {"auto": STRATEGIES["round_robin"]}
    monkeypatch.setattr("jflow.compiler.placement.named.STRATEGIES", losing)
    monkeypatch.setattr("jflow.lab.suite.scoring.optimal", _unauthenticated)
    code, line = run(capsys, "--strategies", "auto", "--devices", "2", "--output", str(tmp_path))
    assert code == 1
    assert "auto slower than one device in" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--strategies", "hefty"], "there is no placement strategy 'hefty'"),
        (["--strategies", "heft,"], "--strategies: expected names between commas, got 'heft,'"),
        (["--workloads", "layerd"], "there is no workload 'layerd'; there are all, layered"),
        (["--devices", "2,x"], "--devices: expected numbers between commas, got '2,x'"),
        (["--devices", "1"], "expected numbers of devices of 2 or more, got 1"),
        (["--imported", "/no/such/folder"], "--imported: the directory '/no/such/folder' does not"),
        (["--output", "/dev/null"], "--output: '/dev/null' is not a directory"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, line = run(capsys, *arguments)
    assert code == 2
    assert line.startswith("jflow: ")
    assert words in line
    assert not [*tmp_path.iterdir()]
