"""Calibrations of a real target, and of one whose times are computed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.compiler.pipeline import StepRequest, compile_placed, region_problem
from jflow.compiler.placement.calibration import PRIOR, Calibration, Machine
from jflow.lab.calibration import (
    Reference,
    RegionTimes,
    calibrate,
    calibration_report,
    measured_programs,
)
from jflow.lab.calibration.measure import _overlap, _port_share
from jflow.lab.calibration.probes import PROBES
from jflow.lab.calibration.site import Site, Time

HERE = Machine("a", "Model 1", 2, "0.10.2", "0.10.2")
SMALL = ("a number", "product 128, 32 times", "tanh of 200k, 16 times")


def test_a_quick_calibration_of_this_process_has_rates_and_links() -> None:
    few = [probe for probe in PROBES if probe.name in SMALL]
    assert len(few) == len(SMALL)
    heard: list[str] = []
    found = calibrate("", quick=True, probes=few, now=lambda: 1e9, progress=heard.append)
    assert found.rates["CPU"].flops > 1e8
    assert 0 < found.rates["CPU"].dispatch < 0.1
    assert 0 < found.step_seconds["process"] < 0.1
    assert found.links["process"].bandwidth > 1e6
    assert 0 < found.rates["CPU"].message < 0.1
    assert found.rates["CPU"].sent_bandwidth > 1e6
    assert found.rates["CPU"].mesh_dispatch >= found.rates["CPU"].dispatch
    assert 0 < found.reference_seconds < 1.0
    assert found.port_share == PRIOR.port_share  # there are no three tasks
    assert Calibration.from_json(found.to_json()) == found
    assert any("CPU rates on" in line for line in heard)
    assert any("collectives of" in line and "[ring=4]" in line for line in heard)
    text = calibration_report(found, now=lambda: 1e9 + 3 * 86_400)
    assert "measured 3 days ago on" in text
    assert "error of CPU rates, each program predicted from the others" in text
    assert "a message of a collective" in text
    assert 0 < found.work_error < 1
    assert found.message_error >= 1.0  # so much more it may be in a training step
    assert not any("sent" in doubt for doubt in found.doubts)
    assert f"programs may take {found.work_error:.0%} less" in text


def test_a_report_says_which_checks_are_off() -> None:
    good = replace(PRIOR, machine=HERE, errors={"CPU rates, repeated": 0.5})
    assert "doubtful" not in calibration_report(good, now=lambda: 1e9)
    rings = replace(good, collective_error=0.8)
    assert not rings.doubts, "they decide nothing"
    assert "collectives, each predicted from the others: 80.0%" in calibration_report(rings)
    bad = replace(good, errors={"CPU rates, repeated": 0.51})
    assert "doubtful" in calibration_report(bad, now=lambda: 1e9)
    assert "(CPU rates, repeated: 51%): calibrate again" in calibration_report(bad, now=lambda: 1e9)


def test_rates_and_links_are_timed_in_the_same_turns(monkeypatch) -> None:
    calls = []

    def times(site, steps, n_runs):
        calls.append([step.name for step in steps])
        return [Time(1e-3, 0.0) for _ in steps]

    monkeypatch.setattr(Site, "times", times)
    few = [probe for probe in PROBES if probe.name in SMALL]
    calibrate("", quick=True, probes=few)
    names, on_meshes = calls
    assert "all-reduce" in on_meshes  # after the others: a mesh changes how a process computes
    assert {*SMALL} <= {*names}
    assert any("there" in name for name in names)


def test_the_reference_program_runs_again(monkeypatch) -> None:
    ran = []
    with Reference("") as reference:
        monkeypatch.setattr(reference, "_call", lambda: ran.append("once"))
        reference.run_step()
    assert ran == ["once"]


def test_transfers_that_wait_for_each_other_share_ports_and_others_do_not() -> None:
    assert _port_share([1.0, 3.0, 3.0, 5.0]) == 1.0
    assert _port_share([1.0, 3.0, 3.0, 3.0]) == 0.0
    assert _port_share([1.0, 3.0, 5.0, 6.0]) == pytest.approx(0.5)
    assert _port_share([1.0, 3.0, 3.0, 9.0]) == 1.0


def test_overlap_is_what_two_things_take_less_together() -> None:
    assert _overlap([1.0, 3.0, 4.0, 6.0]) == 0.0
    assert _overlap([1.0, 3.0, 4.0, 4.0]) == 1.0
    assert _overlap([1.0, 3.0, 4.0, 5.0]) == pytest.approx(0.5)


def a_step():
    with tf.Graph().as_default():
        x = tf.Variable(np.ones((64, 64), np.float32)).value()
        y = tf.numpy.sum(x @ x)
        with tf.Session() as session:
            return compile_placed(StepRequest((), (y,), ()), session.placement(y))


class Clock:
    """Goes on by the next of some durations each second time that it is asked."""

    def __init__(self, *durations: float) -> None:
        self.now, self.durations, self.reads = 0.0, [*durations], 0

    def __call__(self) -> float:
        self.reads += 1
        if self.reads % 2 == 0:
            self.now += self.durations.pop(0)
        return self.now


def test_programs_are_measured_once_and_their_dispatch_is_taken_off(tmp_path: Path) -> None:
    known = RegionTimes(tmp_path / "regions.json", HERE)
    step = a_step()
    clock = Clock(*[0.25] * 7, *[3.0, 2.25, 9.0, 2.5, 2.25, 4.0, 5.0])
    found = measured_programs(step, known, clock=clock)
    assert [*found.values()] == [2.0]
    known.save()
    again = RegionTimes(tmp_path / "regions.json", HERE)
    assert measured_programs(a_step(), again, clock=Clock()) == found
    problem, _ = region_problem(step, measured=found)
    assert problem.costs.seconds.max() == pytest.approx(2.0 + PRIOR.rates["CPU"].dispatch)


def test_times_of_another_machine_are_not_used(tmp_path: Path) -> None:
    known = RegionTimes(tmp_path / "regions.json", HERE)
    known.put("digest", "cpu", 1.0)
    known.save()
    other = Machine("a", "Model 2", 2, "0.10.2", "0.10.2")
    assert RegionTimes(tmp_path / "regions.json", HERE).get("digest", "cpu") == 1.0
    assert RegionTimes(tmp_path / "regions.json", other).get("digest", "cpu") is None


def test_times_that_were_used_longest_ago_go_first(tmp_path: Path) -> None:
    known = RegionTimes(tmp_path / "regions.json", HERE, capacity=2)
    for name in ("a", "b"):
        known.put(name, "cpu", 1.0)
    known.get("a", "cpu")
    known.put("c", "cpu", 1.0)
    assert [known.get(name, "cpu") for name in "abc"] == [1.0, None, 1.0]
    assert len(known) == 2


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": 2, "seconds": {}}', '{"format": 1, "seconds": {"a": "x"}}']
)
def test_a_broken_cache_is_an_empty_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "regions.json"
    path.write_text(text)
    assert len(RegionTimes(path, HERE)) == 0


def test_the_file_of_times_is_json(tmp_path: Path) -> None:
    known = RegionTimes(tmp_path / "regions.json", HERE)
    known.put("digest", "cpu", 0.5)
    known.save()
    data = json.loads((tmp_path / "regions.json").read_text())
    assert data["seconds"] == {"digest cpu Model 1, 2 cores, jaxlib 0.10.2": 0.5}
