"""The file of the calibration: where it is, and when it is not used."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

import jflow as tf
from jflow.client.runtime.calibration_file import (
    MAX_AGE_S,
    calibration_path,
    current_calibration,
    read_calibration,
    this_machine,
    write_calibration,
)
from jflow.compiler.placement.calibration import PRIOR
from jflow.errors import InvalidArgumentError, NotFoundError

NOW = 2e9


def now() -> float:
    return NOW


def measured(**changes: object):
    """A calibration that was made here and now, in which products take a thousand times as long."""
    cpu = PRIOR.rates["CPU"]
    slow = {"CPU": replace(cpu, flops=cpu.flops / 1000)}
    return replace(PRIOR, rates=slow, made=NOW, machine=this_machine(), **changes)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that sessions read."""
    path = tmp_path / "new" / "calibration.json"
    monkeypatch.setenv("JFLOW_CALIBRATION", str(path))
    return path


def test_the_path_is_a_named_file_or_one_in_the_cache_of_the_user(tmp_path: Path) -> None:
    assert calibration_path({"JFLOW_CALIBRATION": "x.json"}) == Path("x.json")
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    assert calibration_path(cache) == tmp_path / "jflow" / "calibration.json"
    for unset in ({}, {"XDG_CACHE_HOME": "relative"}):
        assert calibration_path(unset) == Path.home() / ".cache" / "jflow" / "calibration.json"


def test_what_is_written_is_read(path: Path) -> None:
    write_calibration(measured(), path)
    assert read_calibration(path, now=lambda: NOW + MAX_AGE_S) == measured()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_calibration_that_is_missing_is_an_error_only_if_asked_for(path: Path) -> None:
    with pytest.raises(NotFoundError, match="run `jflow calibrate"):
        read_calibration(path)


@pytest.mark.parametrize(
    ("calibration", "words"),
    [
        (replace(measured(), made=NOW - MAX_AGE_S - 86_400), "is 31 days old, at most 30"),
        (replace(measured(), machine=replace(this_machine(), jaxlib="0.1")), "jaxlib 0.1, here"),
        (replace(measured(), machine=replace(this_machine(), n_cores=999)), "n_cores 999, here"),
        (replace(measured(), machine=None), "it names no machine"),
        (None, "cannot be read: it is not the JSON"),
    ],
    ids=["old", "other jaxlib", "other machine", "no machine", "broken"],
)
def test_a_calibration_that_is_of_no_use_is_a_warning_and_the_prior_is_used(
    path: Path, caplog: pytest.LogCaptureFixture, calibration, words: str
) -> None:
    path.parent.mkdir()
    path.write_text("{" if calibration is None else calibration.to_json())
    with pytest.raises(InvalidArgumentError, match=f"run `jflow calibrate --output {path}`"):
        read_calibration(path, now=now)
    with caplog.at_level(logging.WARNING):
        assert current_calibration(path, now=now) is PRIOR
        assert current_calibration(path, now=now) is PRIOR
    (record,) = caplog.records
    assert words in record.message
    assert "from a prior" in record.message


def test_no_calibration_at_all_is_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert current_calibration(tmp_path / "none.json") is PRIOR
    assert not caplog.records


def test_a_named_file_that_does_not_exist_is_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert current_calibration() is PRIOR
    assert f"JFLOW_CALIBRATION names {str(path)!r}, which does not exist" in caplog.text


def predicted() -> float:
    with tf.Graph().as_default():
        x = tf.constant([[1.0] * 64] * 64)
        y = x @ x
        with tf.Session(config=tf.ConfigProto(placement="single")) as session:
            return session.explain(y).predicted_seconds


def test_sessions_predict_by_the_calibration(path: Path) -> None:
    before = predicted()
    write_calibration(measured(), path)
    flops = 2 * 64**3
    rates, slow = PRIOR.rates["CPU"], measured().rates["CPU"]
    assert predicted() - before == pytest.approx(flops / slow.flops - flops / rates.flops)


def test_a_calibration_that_is_written_again_is_read_again(path: Path) -> None:
    write_calibration(measured(), path)
    assert current_calibration() == measured()
    write_calibration(measured(port_share=0.5), path)
    assert current_calibration() == measured(port_share=0.5)


def test_a_calibration_whose_own_checks_are_off_is_used_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checks = {"link grpc/host, repeated": 0.7, "CPU rates, repeated": 0.2}
    doubtful = measured(errors=checks, work_error=0.6)
    write_calibration(doubtful, path)
    for _ in range(2):
        assert current_calibration(path, now=now) == doubtful
    (warning,) = caplog.messages
    assert "doubtful" in warning
    assert "programs, against estimates: 60%; link grpc/host, repeated: 70%)" in warning
    assert f"run `jflow calibrate --output {path}`" in warning
