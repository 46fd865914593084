"""The tour, as a newcomer takes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import psutil


def test_the_demo_survives_a_kill_trains_as_plain_jax_does_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jflow", "demo"],
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    trained, plain, seen = (float(x) for x in re.findall(r"([\d.]+)%", done.stdout))
    assert trained > 90
    assert abs(trained - plain) <= 2.0
    assert seen == trained
    assert not done.stderr  # no progress in a file
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


def _split(rows: list[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    return [(name, size.split()) for name, size in rows]


def _has_path(process: psutil.Process, path: Path) -> bool:
    return (process.info["environ"] or {}).get("HOME") == str(path)
