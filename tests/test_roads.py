"""The roads that ARCHITECTURE.md describes are those that values pass."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
ROADS = ("step", "enqueue", "gradient", "closure")

_STOP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", re.MULTILINE)


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[dict[str, str]]]:
    command = [sys.executable, "-m", "tests.programs.roads", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    roads: dict[str, list[dict[str, str]]] = json.loads(ran.stdout)
    return roads


def _stops(road: str) -> list[tuple[str, str]]:
    section = PAGE.split(f"(`{road}`)\n", 1)[1].split("\n#", 1)[0]
    return _STOP.findall(section)


@pytest.mark.parametrize("road", ROADS)
def test_a_value_passes_the_stops_of_its_road_in_their_order(road, recorded) -> None:
    calls = iter([(call["file"], call["name"]) for call in recorded[road]])
    stops = _stops(road)
    assert len(stops) >= 8
    missed = [stop for stop in stops if not any(call == stop for call in calls)]
    assert not missed, "not passed, or not in this order"


def test_each_file_that_the_page_names_exists() -> None:
    paths = [str(path) for path in (ROOT / "jflow").rglob("*.py")]
    named = set(re.findall(r"`(?:jflow/)?([\w/]+\.py)`", PAGE))
    named |= set(re.findall(r"`((?:tests|bench)/[\w/]+\.py)`", PAGE))
    assert not [
        name
        for name in named
        if not (ROOT / name).exists() and not any(path.endswith("/" + name) for path in paths)
    ]
