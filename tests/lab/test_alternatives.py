"""The alternatives that `explain` predicts, in the results and on the page of the benchmark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jflow.lab.measure import CheckedAlternative
from jflow.lab.suite import Measuring, SuiteOptions, compare
from tests.lab.test_suite import fake

OPTIONS = SuiteOptions(("heft",), ("moe",), (2,), simulates=False)


def check(workload, strategy, n_devices, rounds, seed):
    assert (workload, strategy, n_devices, seed) == ("moe", "heft_c", 2, 0)
    return [
        CheckedAlternative("dot", "cpu:0", True, 1.0, 1.0, (1.0,) * rounds, 1.0),
        CheckedAlternative("dot", "cpu:1", False, 3.0, 3.0, (2.0,) * rounds, 1.0),
    ]


def broken(*_):
    raise RuntimeError("the cluster is gone")


def test_each_alternative_has_its_prediction_beside_it(tmp_path: Path) -> None:
    found = compare(OPTIONS, tmp_path, measuring=Measuring(fake, check=check))
    page = (tmp_path / "README.md").read_text()
    assert "| dot on cpu:0, chosen | 1 s | 1 s ± 0 % | 0 % |" in page
    assert "| dot on cpu:1 | 3 s | 2 s ± 0 % | 50 % |" in page
    assert "| moe | 2 | 2 | 25 % | 25 % | 25 % | 1.00 | 1.00 | 0 % | 0 % |" in page
    options = replace(OPTIONS, resume=True)
    again = compare(options, tmp_path, measuring=Measuring(fake, check=broken))
    assert [each.strategy for each in again.alternatives] == [
        each.strategy for each in found.alternatives
    ]


def test_a_quick_run_leaves_alternatives_out() -> None:
    measuring = Measuring(fake, check=broken)
    assert not compare(replace(OPTIONS, quick=True), measuring=measuring).alternatives


def test_alternatives_that_fail_are_refused_and_run_again_later(tmp_path: Path) -> None:
    compare(OPTIONS, tmp_path, measuring=Measuring(fake, check=broken))
    assert "RuntimeError: the cluster is gone (moe)" in (tmp_path / "README.md").read_text()
    options = replace(OPTIONS, resume=True)
    again = compare(options, tmp_path, measuring=Measuring(fake, check=check))
    assert len(again.alternatives) == 2
