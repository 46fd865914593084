"""The tour, as a newcomer takes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import psutil


def test_the_demo_trains_as_well_as_plain_jax_and_leaves_nothing_behind(tmp_path: Path) -> None:
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
    assert abs(trained - plain) <= 1.0
    assert seen == trained
    assert "800/800" in done.stderr
    assert "'hidden_w' (container 'digits') on /job:ps/task:0" in done.stdout
    assert ET.parse(tmp_path / "jflow-demo.svg").getroot().tag.endswith("svg")
    assert not [p for p in psutil.process_iter(["environ"]) if _has_path(p, tmp_path)]


def _has_path(process: psutil.Process, path: Path) -> bool:
    return (process.info["environ"] or {}).get("HOME") == str(path)
