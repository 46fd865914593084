"""`jflow replay`: what it prints of a recorded run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.cli.main import main
from jflow.launch.testing.backends import in_process


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("log") / "run.jlog")
    with tf.Graph().as_default() as graph, in_process() as backend:
        x = tf.placeholder(tf.float32, [3])
        v = tf.Variable(np.zeros(3, np.float32), name="v")
        step = v.assign_add(x)
        with tf.Session(backend.target, graph, tf.ConfigProto(record=path)) as session:
            session.run(v.initializer)
            for n in range(4):
                session.run(step, {x: np.full(3, n, np.float32)})
            session.run(v)
    return path


def test_it_says_what_was_computed_and_that_it_is_equal(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", log]) == 0
    printed = capsys.readouterr().out
    assert "5 steps updated variables, on /job:" in printed
    assert "updates of others between what a step read and its own: 0 (5 steps)" in printed
    assert "5 values that steps returned were compared with the run: all are equal" in printed
    assert printed.splitlines()[-1].split() == ["v", "float32", "3"]


def test_it_stops_prints_steps_and_saves(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "values.npz"
    assert main(["replay", log, "--until", "4", "--steps", "--save", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["STEP", "BEGAN", "LOG", "WHAT", "STALENESS", "NOTE"]
    assert [line.split()[0] for line in lines[1:5]] == ["1", "2", "3", "4"]
    assert "updates v" in lines[4]
    with np.load(path) as saved:
        np.testing.assert_array_equal(saved["v"], np.full(3, 3, np.float32), strict=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--until", "0"], "--until must be at least 1, got 0"),
        (["--save", "values.txt"], "--save must end with .npz, got 'values.txt'"),
    ],
)
def test_wrong_options_are_named(
    log: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", log, *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_changed_log_is_refused(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = bytearray(Path(log).read_bytes())
    changed[len(changed) // 2] ^= 1
    path = tmp_path / "changed.jlog"
    path.write_bytes(bytes(changed))
    assert main(["replay", str(path)]) == 1
    assert "is damaged: the record at byte" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "none.jlog")]) == 2


def test_values_that_differ_are_a_failure(
    log: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jflow.client.replay.attempt.checksum", lambda data: 1)
    assert main(["replay", log]) == 1
    assert "compared with the run: 5 differ" in capsys.readouterr().out
