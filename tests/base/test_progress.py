"""Progress bars, with and without tqdm."""

from __future__ import annotations

import sys

import pytest

from jflow.base.progress import Progress


def test_without_tqdm_there_is_a_line_per_quarter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with Progress(8, "small", "case") as progress:
        for number in range(8):
            progress.advance(f"note {number}")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "small: 2 of 8 cases, note 1"
    assert len(lines) == 4


def test_a_bar_of_tqdm_counts_to_its_end_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress(2, "small", "case") as progress:
        progress.advance("a")
        progress.advance("b")
    assert "2/2" in capsys.readouterr().err


def test_there_is_no_bar_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    with Progress(4, "small", "case") as progress:
        for _ in range(4):
            progress.advance("a")
    assert capsys.readouterr().err.splitlines() == [
        f"small: {n} of 4 cases, a" for n in (1, 2, 3, 4)
    ]
