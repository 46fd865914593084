"""Calibrations as data."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from jflow.compiler.placement.calibration import PRIOR, Calibration, Machine
from jflow.errors import InvalidArgumentError

HERE = Machine("a", "Model 1", 2, "0.10.2", "0.10.2")
MEASURED = replace(
    PRIOR,
    made=1e9,
    machine=HERE,
    port_share=0.5,
    duplex_share=0.75,
    overlap=0.25,
    errors={"CPU rates": 0.1},
)
LINK = {"latency": 0, "bandwidth": 1, "overhead": 0, "processor_share": 0}


@pytest.mark.parametrize("calibration", [PRIOR, MEASURED])
def test_a_calibration_is_the_same_after_writing_and_reading(calibration: Calibration) -> None:
    assert Calibration.from_json(calibration.to_json()) == calibration


def changed(**changes: object) -> str:
    return json.dumps({**json.loads(MEASURED.to_json()), **changes})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "it is not the JSON of a calibration"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "expected format 5, got None"),
        (changed(format=1), "expected format 5, got 1"),
        (changed(more=1), "expected all fields of a calibration, and no others"),
        (changed(rates=[]), "Expected `object`, got `array` - at `$.rates`"),
        (
            changed(rates={"CPU": {"flops": 1.0}}),
            "missing required field `convolutions` - at `$.rates[...]`",
        ),
        (changed(links={"x": {**LINK, "latency": -1}}), ">= 0.0 - at `$.links[...].latency`"),
        (changed(links={"x": {**LINK, "bandwidth": 0}}), "> 0.0 - at `$.links[...].bandwidth`"),
        (
            changed(links={"x": {**LINK, "bandwidth": True}}),
            "got `bool` - at `$.links[...].bandwidth`",
        ),
        (
            changed(links={"x": {"latency": 0, "bandwidth": 1}}),
            "expected all fields of a calibration, and no others",
        ),
        (
            changed(links={"x": {**LINK, "processor_share": 2}}),
            "<= 1.0 - at `$.links[...].processor_share`",
        ),
        (changed(port_share=1.5), "<= 1.0 - at `$.port_share`"),
        (changed(made=float("nan")), "JSON is malformed"),
        (changed(step_seconds={"grpc": "1"}), "got `str` - at `$.step_seconds[...]`"),
        (changed(task_seconds={"grpc": -1}), ">= 0.0 - at `$.task_seconds[...]`"),
        (changed(machine={"host": "a"}), "missing required field `processor` - at `$.machine`"),
    ],
)
def test_a_calibration_of_another_form_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"[Ee]xpected|JSON") as raised:
        Calibration.from_json(text)
    assert words in raised.value.message


def test_a_machine_differs_by_processor_cores_and_jaxlib_but_not_by_name() -> None:
    assert not HERE.difference(replace(HERE, host="b", jax="0.11"))
    assert HERE.difference(replace(HERE, n_cores=4)) == "it was made with n_cores 2, here is 4"
    assert "processor Model 1" in HERE.difference(replace(HERE, processor="Model 2"))
    assert "jaxlib 0.10.2" in HERE.difference(replace(HERE, jaxlib="0.11"))


def test_a_task_that_cannot_do_both_for_most_of_the_time_is_half_duplex() -> None:
    assert MEASURED.half_duplex
    assert not PRIOR.half_duplex


def test_what_was_not_measured_is_as_in_the_prior() -> None:
    none = replace(PRIOR, rates={}, links={}, step_seconds={}, task_seconds={})
    assert none.rates_of("CPU") == PRIOR.rates["CPU"]
    assert none.rates_of("TPU") == PRIOR.rates["GPU"]
    assert none.link_of("process") == PRIOR.links["process"]
    assert none.link_of("grpc/host") == PRIOR.links["host"]
    assert none.link_of("ring/network") == PRIOR.links["network"]
    assert none.task_of("grpc") == PRIOR.task_seconds["grpc"]
    assert none.step_of("grpc") == none.step_of("ring") == PRIOR.step_seconds["grpc"]
