"""The rows of semantics_rows.toml: each is shown by tests, on all backends where there are more."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import BACKENDS
from tests.collected import ids_in

TESTS = Path(__file__).parent
TABLE = tomllib.loads((TESTS / "semantics_rows.toml").read_text())
ON_ALL_BACKENDS = (2, 3, 8, 9)
OF_GRAPHS = (1,)
"""Graphs are built without a backend."""
ON_CLUSTERS = (14, 15, 16)
"""Failures, strategies and coordinators need a cluster."""
OF_CLUSTERS = (10, 12, 13)
"""Descriptions of clusters need no backend; parts of steps and calls have tests of their own."""

ROWS: list[dict[str, Any]] = [row for row in TABLE["row"] if "left_out" not in row]


@pytest.fixture(scope="module")
def collected(request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """The parameters of each test in the files that the rows name, by its id without them."""
    files = {test.partition("::")[0] for row in ROWS for test in row["tests"]}
    found: dict[str, set[str]] = defaultdict(set)
    for line in ids_in(files, request.config):
        test, _, parameters = line.partition("[")
        found[test].update(re.split(r"[-\]]", parameters))
    return found


def backends(row: dict[str, Any], collected: dict[str, set[str]]) -> set[str]:
    """The parameters of the tests of a row, of which some are names of backends."""
    return {parameter for test in row["tests"] for parameter in collected.get(test, ())}


def test_rows_without_tests_are_listed_as_open() -> None:
    lacking = [row["feature"] for row in ROWS if not row["tests"]]
    assert lacking == TABLE.get("open", [])
    assert "open" not in TABLE or TABLE["open"], "no row is open: remove the list"


def test_a_row_has_one_entry() -> None:
    features = [row["feature"] for row in TABLE["row"]]
    assert sorted(set(features)) == sorted(features)
    assert {row["section"] for row in TABLE["row"]} == {
        *ON_ALL_BACKENDS,
        *OF_GRAPHS,
        *ON_CLUSTERS,
        *OF_CLUSTERS,
    }


def test_a_row_that_needs_fewer_backends_says_which(collected: dict[str, set[str]]) -> None:
    """Such a row is about the `client` only, or about a `cluster` only."""
    limited = [row for row in TABLE["row"] if "only" in row]
    assert {row["only"] for row in limited} <= {"client", "cluster"}
    assert {row["section"] for row in limited} <= {*ON_ALL_BACKENDS}
    needless = [row["feature"] for row in limited if set(BACKENDS) <= backends(row, collected)]
    assert not needless, "shown on all backends: remove `only`"


def test_the_tests_of_all_rows_are_collected(collected: dict[str, set[str]]) -> None:
    missing = {test for row in ROWS for test in row["tests"] if test not in collected}
    assert not missing


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row["section"] in ON_ALL_BACKENDS and "only" not in row],
    ids=lambda row: row["feature"],
)
def test_a_row_is_shown_on_all_backends(
    row: dict[str, Any], collected: dict[str, set[str]]
) -> None:
    if not row["tests"]:
        pytest.skip("the row is open")
    assert set(BACKENDS) <= backends(row, collected)


def test_the_page_says_how_many_rows_are_shown() -> None:
    (sentence,) = re.findall(r"(\d+) of (\d+) rows are shown", (TESTS / "README.md").read_text())
    assert sentence == (str(sum(bool(row["tests"]) for row in ROWS)), str(len(TABLE["row"])))
