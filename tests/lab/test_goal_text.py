"""What the page of the benchmark says of goals."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from jflow.errors import InvalidArgumentError
from jflow.lab.suite.goals import Goal, goals_text, read_goals, without_reasons

NOTES = """
## Why goals are missed

- **G5**: the search is short.

## Notes

- **G5 has two figures.**
"""
REACHED, MISSED = Goal("G1", "ratio", "≤ 1", "1", True), Goal("G5", "time", "≤ 1 s", "2 s", False)


def test_goals_are_in_the_order_of_their_names_with_the_reasons_for_those_that_are_missed() -> None:
    text = goals_text([MISSED, REACHED], NOTES)
    assert (
        text.index("| G1 |") < text.index("| G5 |") < text.index("- **G5**: the search is short.")
    )
    assert "two figures" not in text


def test_a_missed_goal_without_a_reason_is_named() -> None:
    text = goals_text([MISSED, Goal("G7", "speed", "≥ 2", "1", False)], NOTES)
    assert "- **G7**: no reason is given; NOTES.md of this folder can have one" in text
    assert "- **G5**: no reason" not in text


def test_a_quick_run_does_not_judge_what_it_misses() -> None:
    text = goals_text([MISSED, REACHED], "", is_quick=True)
    assert "| not judged |" in text
    assert "- **G5**: a quick run, of fewer cases and a short calibration, does not judge" in text
    assert "**no**" not in text
    assert "no reason" not in text


def test_reasons_are_left_out_where_all_goals_are_reached_and_of_the_notes() -> None:
    assert "Why" not in goals_text([REACHED], NOTES)
    assert without_reasons(NOTES) == "\n## Notes\n\n- **G5 has two figures.**\n"


def test_goals_are_read_from_a_file_and_a_broken_one_is_refused_by_name(tmp_path) -> None:
    path = tmp_path / "long-goals.json"
    assert read_goals(path) == []
    path.write_text(json.dumps([asdict(MISSED)]))
    assert read_goals(path) == [MISSED]
    path.write_text('{"name": 1}')
    with pytest.raises(InvalidArgumentError, match=r"long-goals\.json is not a list of goals"):
        read_goals(path)
