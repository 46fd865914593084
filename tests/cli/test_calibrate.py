"""`jflow calibrate`, as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jflow.cli.main import main
from jflow.placement.calibration import Calibration
from jflow.runtime.calibration_file import read_calibration
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
    output = capsys.readouterr()
    assert output.out.startswith("measured today on ")
    assert f"written to {path}" in output.out
    assert "measuring link grpc/host from " in output.err


def test_a_server_that_does_not_exist_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--target", "http://127.0.0.1:1"]) == 2
    assert "No session factory registered for target" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_said_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object, **__: object) -> Calibration:
        raise AssertionError("it measures")

    monkeypatch.setattr("jflow.calibration.calibrate", measure)
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "costs.json"
    assert main(["calibrate", "--output", str(path)]) == 2
    assert f"the calibration cannot be written to {path}" in capsys.readouterr().err
