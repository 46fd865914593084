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
    assert not done.stderr  # no progress in a file
    predicted = {
        name: float(time) * {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit]
        for name, time, unit in re.findall(
            r"^   (\w+|lower bound) +([\d.]+) (m?s|µs)  ", done.stdout, re.M
        )
    }
    assert {*predicted} == {"auto", "single", "round_robin", "rules", "lower bound"}
    assert predicted["lower bound"] <= predicted["auto"] <= predicted["single"]
    assert predicted["auto"] <= 1.12 * min(predicted["round_robin"], predicted["rules"])
    assert "'hidden_w' (container 'digits') on /job:ps/task:0" in done.stdout
    picture = ET.parse(tmp_path / "jflow-demo.svg").getroot()
    assert picture.tag.endswith("svg")
    assert "placed by auto: predicted step time" in "".join(picture.itertext())
    assert not [p for p in psutil.process_iter(["environ"]) if _has_path(p, tmp_path)]


def _has_path(process: psutil.Process, path: Path) -> bool:
    return (process.info["environ"] or {}).get("HOME") == str(path)
