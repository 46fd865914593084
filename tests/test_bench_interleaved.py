"""Measuring two libraries in turns: in what order processes run, and what happens if one fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bench import against
from bench.against import Comparison, Sides, load, measure
from bench.interleaved import CaseError, CaseProcess, Schedule, compare
from bench.rows import Alone, Case, Row
from jflow.base.progress import Progress

BENCH = Path(__file__).parent.parent / "bench"
NAMES = "old", "new", "again"
HEAD = """\
import os, subprocess, sys, time
from bench.timing import alternate, tell

NAME = os.environ["NAME"]

def note(what):
    with open("log", "a") as log:
        log.write(f"{NAME}: {what}\\n")
"""
TWO_PAUSES = """
note("sets up")
tell(alternate({"call": lambda: note("call"), "peer": lambda: note("peer")}, n=1))
note("sets up again")
tell({"memory": float(len(NAME))})
tell(alternate({"other": lambda: note("other")}, n=1, items=10))
note("ends")
"""


@contextmanager
def processes(folder: Path, case: str, limit_s: float = 300.0) -> Iterator[list[CaseProcess]]:
    """Three of a case that writes what it does into a file `log`."""
    (folder / "case.py").write_text(HEAD + case)
    (folder / "bench").symlink_to(BENCH)
    command = [sys.executable, "-S", "case.py"]
    made = [CaseProcess(name, command, folder, {"NAME": name}, limit_s) for name in NAMES]
    with made[0], made[1], made[2]:
        yield made


def log(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def test_one_process_runs_at_a_time_and_calls_are_timed_in_turns(tmp_path: Path) -> None:
    with processes(tmp_path, TWO_PAUSES) as made:
        found = list(compare(made, {"call", "memory", "other"}, Schedule(least=2, spent_s=0)))
    begun = [f"{name}: {what}" for name in NAMES for what in ("sets up", "call", "peer")]
    continued = [f"{name}: {what}" for name in NAMES for what in ("sets up again", "other")]
    rotated = [*NAMES, "new", "again", "old"]
    calls = [f"{name}: call" for name in rotated]
    others = [f"{name}: other" for name in rotated]
    ended = [f"{name}: ends" for name in NAMES]
    assert log(tmp_path) == begun + calls + continued + others + ended
    assert [figure for figure, _ in found] == ["call", "call", "other", "other", "memory"]
    assert found[-1] == ("memory", (3.0, 3.0, 5.0))
    assert all(value > 0 for _, values in found for value in values)


def test_short_calls_have_more_turns_while_there_is_time() -> None:
    assert len(list(Schedule(least=3, most=7, spent_s=600).numbers())) == 7
    assert len(list(Schedule(least=3, most=7, spent_s=0).numbers())) == 3


def test_a_process_that_fails_is_named_with_its_messages_and_the_others_end(
    tmp_path: Path,
) -> None:
    case = """
if NAME == "new":
    raise ValueError("no such thing")
try:
    alternate({"call": lambda: None}, n=1)
finally:
    note("removes its files")
"""
    with (
        processes(tmp_path, case) as made,
        pytest.raises(CaseError, match=r"(?s)case\.py.*no such thing") as caught,
    ):
        list(compare(made, {"call"}, Schedule(least=1)))
    assert caught.value.process is made[1]
    assert caught.value.reason == "ended with status 1: ValueError: no such thing"
    assert log(tmp_path) == ["old: removes its files"]


def test_a_process_that_dies_in_a_call_is_named(tmp_path: Path) -> None:
    case = """
alternate({"call": lambda: None}, n=1)
alternate({"other": lambda: os._exit(3) if os.path.exists("log") else None}, n=1)
"""
    with processes(tmp_path, case) as made:
        values = compare(made, {"call", "other"}, Schedule(least=1, spent_s=0))
        assert next(values)[0] == "call"
        for process in made:
            process.advance()
        (tmp_path / "log").touch()
        with pytest.raises(CaseError, match=r"^old: ended with status 3"):
            made[0].seconds("other")


def test_a_process_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    case = """
with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]):
    time.sleep(600)
"""
    with (
        processes(tmp_path, case, limit_s=1.0) as made,
        pytest.raises(CaseError, match=r"^old: printed nothing for 1 s"),
    ):
        made[0].advance()  # its end is read only when no process has its output open


def test_a_process_that_prints_something_else_is_named(tmp_path: Path) -> None:
    with (
        processes(tmp_path, "print('hello')") as made,
        pytest.raises(CaseError, match=r"^old: expected figures in JSON.* got 'hello\\n'"),
    ):
        made[0].advance()


def test_processes_that_pause_at_different_calls_are_named(tmp_path: Path) -> None:
    with (
        processes(tmp_path, "alternate({NAME: lambda: None}, n=1)") as made,
        pytest.raises(CaseError, match=r"^new: pauses at \['new'\] while old is at \['old'\]"),
    ):
        list(compare(made, {"old"}, Schedule(least=1)))


# Cases beside two libraries -----------------------------------------------------------------------

CASE = """
import jflow
from bench.timing import alternate, tell

tell(alternate({"call": jflow.call}, n=1))
tell({"memory": jflow.MEMORY})
"""
OLDER, NEWER = "def call(): pass\nMEMORY = 1.0\n", "def call(): pass\nMEMORY = 3.0\n"
BROKEN = "print('jflow cannot be imported', file=__import__('sys').stderr)\nraise SystemExit(1)\n"


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pages are written; the rows are those of `CASE`."""
    monkeypatch.setattr(against, "ROOT", tmp_path)
    monkeypatch.setattr(against, "ROWS", [Row("call", ""), Alone("memory", unit="B")])
    (tmp_path / "bench").mkdir()
    return tmp_path / "bench"


def sides(folder: Path, older: str, newer: str) -> Sides:
    """Two trees with a case `tiny` and those libraries."""
    for name, library in (("old", older), ("new", newer)):
        (folder / name / "bench" / "cases").mkdir(parents=True)
        for package in ("bench", "bench/cases"):
            (folder / name / package / "__init__.py").touch()
        (folder / name / "bench" / "timing.py").symlink_to(BENCH / "timing.py")
        (folder / name / "bench" / "cases" / "tiny.py").write_text(CASE)
        (folder / name / "jflow.py").write_text(library)
    return Sides(folder / "new", folder / "old")


def measured(found: Comparison, made: Sides, rounds: int = 1) -> None:
    with Progress(rounds, "tiny") as progress:
        measure(Case("tiny"), made, rounds, found, progress)


def test_a_case_is_written_with_enough_turns_for_a_verdict_and_a_round_for_its_memory(
    tmp_path: Path, written: Path
) -> None:
    found = Comparison("aaa", "bbb")
    measured(found, sides(tmp_path, OLDER, NEWER), rounds=2)
    figures = json.loads((written / "against.json").read_text())["figures"]
    assert figures["call"]["samples"] >= 9
    assert (figures["memory"]["samples"], figures["memory"]["ratio"]) == (2, 3.0)
    page = (written / "AGAINST.md").read_text()
    assert "# This tree (bbb) beside aaa" in page
    assert "| memory | 0.0 kB | 0.0 kB | 3.00 | 1.00 to 1.00 | 2 | too few to say |" in page


def test_a_case_that_the_older_library_cannot_run_is_named(tmp_path: Path, written: Path) -> None:
    measured(Comparison("aaa", "bbb"), sides(tmp_path, BROKEN, NEWER))
    page = (written / "AGAINST.md").read_text()
    assert "`bench.cases.tiny` does not run to its end with aaa" in page
    assert "jflow cannot be imported" in page


def test_a_case_that_fails_in_this_tree_ends_the_comparison(tmp_path: Path, written: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)tiny, this tree: ended.*jflow cannot be imported"):
        measured(Comparison("aaa", "bbb"), sides(tmp_path, OLDER, BROKEN))
    assert json.loads((written / "against.json").read_text())["figures"] == {}


def test_a_comparison_that_is_stopped_leaves_the_turns_that_it_has_taken(
    tmp_path: Path, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> Iterator[tuple[str, tuple[float, ...]]]:
        yield from [("call", (1.0, 2.0, 1.0)), ("call", (1.0, 4.0, 1.0))]
        raise KeyboardInterrupt

    monkeypatch.setattr(against, "compare", stopped)
    with pytest.raises(KeyboardInterrupt):
        measured(Comparison("aaa", "bbb"), sides(tmp_path, OLDER, NEWER))
    call = load(written, "aaa", "bbb").figures["call"]
    assert (call.samples, call.ratio) == (2, 3.0)
    assert "too few to say" in (written / "AGAINST.md").read_text()


def test_figures_of_the_same_libraries_stay_and_those_of_others_do_not(
    tmp_path: Path, written: Path
) -> None:
    measured(Comparison("aaa", "bbb"), sides(tmp_path, OLDER, NEWER))
    assert set(load(written, "aaa", "bbb").figures) == {"call", "memory"}
    assert load(written, "aaa", "ccc") == Comparison("aaa", "ccc")
    assert load(written, "ccc", "bbb") == Comparison("ccc", "bbb")


def test_the_worktree_of_the_older_commit_is_removed_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        return subprocess.check_output(["git", *author, *words], cwd=tmp_path, text=True)

    (tmp_path / "jflow").mkdir()
    (tmp_path / "jflow" / "__init__.py").write_text("VERSION = 1\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    monkeypatch.setattr(against, "ROOT", tmp_path)
    with suppress(KeyError), against._sides("HEAD") as made:
        assert (made.old / "jflow" / "__init__.py").read_text() == "VERSION = 1\n"
        assert len(git("worktree", "list").splitlines()) == 2
        raise KeyError
    assert len(git("worktree", "list").splitlines()) == 1
