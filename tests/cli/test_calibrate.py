"""`jflow calibrate`, as a user types it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from jflow.cli.main import main
from jflow.client.runtime.calibration_file import read_calibration, this_machine, write_calibration
from jflow.compiler.placement.calibration import PRIOR, Calibration
from tests.clusters import in_process

JOBS = {"ps": 1, "worker": 2}


@pytest.mark.long
def test_it_measures_a_cluster_and_writes_what_sessions_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "new" / "costs.json"
    with in_process(JOBS) as backend:
        arguments = ["calibrate", "--quick", "--target", backend.target, "--output", str(path)]
        assert main(arguments) == 0
    found = read_calibration(path)
    assert {"process", "grpc/host"} == {*found.links}
    assert 0 <= found.port_share <= 1
    assert 0 <= found.overlap <= 1
    assert found.step_seconds["grpc"] > 0
    assert found.task_seconds["grpc"] >= 0
    output = capsys.readouterr()
    assert output.out.startswith("measured today on ")
    assert f"written to {path}" in output.out
    assert not output.err  # no progress in a file


def test_it_shows_how_old_and_how_good_a_calibration_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "costs.json"
    made = time.time() - 5 * 86_400
    errors = {"CPU rates, repeated": 0.125}
    found = replace(PRIOR, made=made, machine=this_machine(), errors=errors)
    write_calibration(found, path)
    assert main(["calibrate", "--show", "--output", str(path)]) == 0
    output = capsys.readouterr().out
    assert output.startswith("measured 5 days ago on ")
    assert "error of CPU rates, repeated: 12.5%" in output


def test_a_calibration_that_is_missing_cannot_be_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "none.json"
    assert main(["calibrate", "--show", "--output", str(path)]) == 2
    expected = f"jflow: there is no calibration {path}; run `jflow calibrate --output {path}`\n"
    assert capsys.readouterr().err == expected


def test_a_server_that_does_not_exist_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--target", "http://127.0.0.1:1"]) == 2
    assert "No session factory registered for target" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_said_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object, **__: object) -> Calibration:
        raise AssertionError("it measures")

    monkeypatch.setattr("jflow.lab.calibration.calibrate", measure)
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "costs.json"
    assert main(["calibrate", "--output", str(path)]) == 2
    assert f"the calibration cannot be written to {path}" in capsys.readouterr().err
