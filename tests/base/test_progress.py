"""Progress of long work, with and without tqdm, on terminals and in files."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.base import progress as progress_module
from jflow.base.progress import Progress, shown_if_long


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "is_watched", lambda: True)


@pytest.fixture
def in_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)


@pytest.fixture
def no_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long is shown at once."""
    monkeypatch.setattr(progress_module, "LONG_S", 0.01)
    monkeypatch.setattr(progress_module, "_TICK_S", 0.01)


@pytest.mark.usefixtures("on_terminal", "no_tqdm")
def test_a_terminal_without_tqdm_gets_a_line_per_quarter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress(8, "small", "case") as progress:
        for number in range(8):
            progress.advance(f"note {number}")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "small: 2 of 8 cases, note 1"
    assert len(lines) == 4


@pytest.mark.usefixtures("on_terminal")
def test_a_bar_of_tqdm_counts_to_its_end_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    with Progress(2, "small", "case") as progress:
        progress.advance("a")
        progress.advance("b")
    assert "2/2" in capsys.readouterr().err


@pytest.mark.usefixtures("on_terminal")
def test_a_bar_that_was_not_requested_waits(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    with Progress(2, "small", "case", after_s=60.0) as progress:
        progress.advance("a")
        progress.advance("b")
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("in_file", "soon")
def test_there_is_nothing_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(4, "small", "case") as progress, shown_if_long("waiting"):
        for _ in range(4):
            progress.advance("a")
        time.sleep(0.05)
    assert [*tf.progress([1, 2])] == [1, 2]
    captured = capsys.readouterr()
    assert not captured.err + captured.out


@pytest.mark.usefixtures("on_terminal")
@pytest.mark.parametrize(
    ("values", "total", "shown"),
    [
        (lambda: [5, 6, 7], None, "3/3"),
        (lambda: iter([5, 6, 7]), 3, "3/3"),
        (lambda: iter([5, 6, 7]), None, "3"),
    ],
)
def test_progress_yields_values_and_counts_them(
    capsys: pytest.CaptureFixture[str],
    values: Callable[[], Any],
    total: int | None,
    shown: str,
) -> None:
    pytest.importorskip("tqdm")
    assert [*tf.progress(values(), "epochs", total=total, unit="epoch")] == [5, 6, 7]
    text = capsys.readouterr().err
    assert "epochs" in text
    assert shown in text.split("\r")[-1]


@pytest.mark.usefixtures("on_terminal")
def test_progress_ends_with_its_loop(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    values = tf.progress(range(10), "epochs")
    assert next(values) == 0
    values.close()  # type: ignore[attr-defined] - it is a generator
    assert "0/10" in capsys.readouterr().err


@pytest.mark.usefixtures("on_terminal", "soon")
@pytest.mark.parametrize("has_tqdm", [True, False])
def test_what_takes_long_says_what_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, has_tqdm: bool
) -> None:
    if has_tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    text = ""
    with shown_if_long("saving the world"):
        limit = time.monotonic() + 30
        while "saving the world …" not in text and time.monotonic() < limit:
            time.sleep(0.01)
            text += capsys.readouterr().err
    assert "saving the world …" in text
    assert "jflow progress" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.usefixtures("on_terminal", "soon")
def test_bars_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tqdm = pytest.importorskip("tqdm").tqdm
    # As TQDM_DISABLE does, which tqdm reads when it is imported.
    monkeypatch.setattr(progress_module, "_bar", lambda **options: tqdm(disable=True, **options))
    with shown_if_long("saving the world"):
        time.sleep(0.1)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("stream", ["none", "closed"])
@pytest.mark.usefixtures("in_file")
def test_without_standard_error_nothing_is_shown(
    monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", None if stream == "none" else closed)
    assert not progress_module.is_watched()


@pytest.mark.usefixtures("on_terminal")
def test_what_is_short_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_if_long("saving the world"):
        pass
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("on_terminal", "soon")
def test_saving_restoring_and_first_steps_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels: list[str] = []

    def note(ended: threading.Event, label: str) -> None:
        labels.append(label)

    monkeypatch.setattr(progress_module, "_show_until", note)
    with (
        tf.LocalCluster(ps=1) as cluster,
        tf.Graph().as_default(),
        tf.Session(cluster.target()) as session,
    ):
        x = tf.Variable(np.arange(3.0, dtype=np.float32), name="x")
        saver = tf.train.Saver()
        session.run(x.initializer)
        session.run(x * float(time.time_ns()))  # no artifact that the cluster has
        path = saver.save(session, str(tmp_path / "model"))
        saver.restore(session, path)
    kinds = {label.split()[0] for label in labels}
    assert kinds == {"sending", "saving", "restoring"}
