"""The tour, as a newcomer takes it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import psutil
import pytest

from jflow.testing import wait_until


def test_the_demo_survives_a_kill_trains_as_plain_jax_does_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jflow", "demo"],
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path), "XLA_FLAGS": ""},  # compiled as for a user
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    trained, plain, seen = (float(x) for x in re.findall(r"([\d.]+)%", done.stdout))
    assert trained > 90
    assert abs(trained - plain) <= 2.0
    assert seen == trained
    # No progress in a file; beside other work it may have to say that it waits.
    assert not [line for line in done.stderr.splitlines() if "waiting for" not in line]
    assert "can keep 16777216 bytes" in done.stdout
    rows = re.findall(r"^   (\w.*?)  +[\d.]+ m?s +[\d.]+ m?s +([\d.]+ \w+)   3$", done.stdout, re.M)
    sent = {name: float(n) * {"KiB": 1, "MiB": 1024}[unit] for name, (n, unit) in _split(rows)}
    assert [*sent] == ["each tower on its worker", "all on worker 0", "in turns, as they come"]
    assert 100 * sent["each tower on its worker"] < sent["all on worker 0"]
    killed, saved = map(int, re.findall(r"after step (\d+)", done.stdout))
    assert 0 < killed - saved <= 25
    assert "'left/w0' (container 'digits') on /job:worker/task:0" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("  jflow up --workers 2")
    picture = ET.parse(tmp_path / "jflow-demo.svg").getroot()
    assert picture.tag.endswith("svg")
    lanes = "".join(picture.itertext())
    assert all(
        f"/job:{task}/device" in lanes for task in ("ps/task:0", "worker/task:0", "worker/task:1")
    )
    assert not [p for p in psutil.process_iter(["environ"]) if _has_path(p, tmp_path)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_leaves_no_process_and_no_file(
    tmp_path: Path, number: signal.Signals
) -> None:
    variables = os.environ | {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "jflow", "demo"],
        cwd=tmp_path,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        assert any(line.startswith("4. ") for line in demo.stdout)
        demo.send_signal(number)
        _, said = demo.communicate()
    # Python drops an interrupt that comes in a destructor; then the demo runs to its end.
    assert demo.returncode == 0 or (demo.returncode, said.splitlines()[-1]) == (
        130,
        "interrupted; no process is left",
    )
    assert {path.name for path in tmp_path.iterdir()} <= {".jflow", ".cache"}
    wait_until(
        lambda: not [p for p in psutil.process_iter(["environ"]) if _has_path(p, tmp_path)],
        "all processes to end",
    )


def _split(rows: list[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    return [(name, size.split()) for name, size in rows]


def _has_path(process: psutil.Process, path: Path) -> bool:
    return (process.info["environ"] or {}).get("HOME") == str(path)
