"""The rows of docs/reliability.md name tests that there are, and figures that are reached."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.collected import ids_in

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
N_FAULTS = 34

ROWS = {
    int(number): [cell.strip() for cell in cells.split("|")]
    for number, cells in re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)
}
"""The cells of each row: promise, test, figure, and what is shown at the large size."""

TESTS = {
    number: re.findall(r"`(tests/[^`]+)`", cells)
    for number, cells in re.findall(r"^\| (G?\d+) \| (.*) \|$", PAGE, re.MULTILINE)
}


def test_the_page_has_each_fault_once() -> None:
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    assert numbers == [*range(1, N_FAULTS + 1)]
    assert all(len(cells) == 4 and all(cells) for cells in ROWS.values())


def test_each_row_names_tests_that_there_are(request: pytest.FixtureRequest) -> None:
    assert not [number for number, tests in TESTS.items() if not tests]
    named = {test for tests in TESTS.values() for test in tests}
    files = {test.partition("::")[0] for test in named}
    found = {line.partition("[")[0] for line in ids_in(files, request.config)}
    assert not named - found


def test_each_figure_in_quotes_is_one_of_the_bench_that_is_reached() -> None:
    bench = (ROOT / "bench" / "README.md").read_text()
    named = {name for cells in ROWS.values() for name in re.findall(r'"([^"]+)"', cells[2])}
    rows: dict[str, list[str]] = {name: [] for name in named}
    for line in bench.splitlines():
        cells = line.split(" | ")
        for name in named & {cells[0].removeprefix("| "), *cells[2:3]}:
            rows[name].append(line)
    assert not [name for name, lines in rows.items() if not lines]
    assert not [line for lines in rows.values() for line in lines if "not reached" in line]
    assert not [name for name, lines in rows.items() if not any(": reached" in x for x in lines)]


def test_the_page_says_how_many_rows_are_shown() -> None:
    states = Counter(re.split(r"[:,]", cells[3])[0] for cells in ROWS.values())
    assert {*states} <= {"whole", "in part", "not shown"}
    words = r"(\d+) of (\d+) rows are whole, (\d+) are in part, (\d+) are not shown"
    said = re.search(words, " ".join(PAGE.split()))
    assert said is not None
    counts = [states["whole"], N_FAULTS, states["in part"], states["not shown"]]
    assert [int(number) for number in said.groups()] == counts


def test_the_targets_that_the_page_names_are_in_the_makefile() -> None:
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    named = {*re.findall(r"`make ([a-z-]+)`", PAGE)}
    assert len(named) >= 5
    assert named <= targets
