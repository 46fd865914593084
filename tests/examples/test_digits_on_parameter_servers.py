"""The example with digits: two workers learn as well as steps one after the other."""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import pytest

import jflow as tf
from jflow.testing import start_servers

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "digits_on_parameter_servers.py"
N_STEPS = 300


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_two_workers_that_do_not_wait_learn_as_well_as_one_after_the_other(
    example: ModuleType,
) -> None:
    trained, tested = example.load_images()
    with tf.connect():
        expected = example.train_one_by_one(trained, N_STEPS).accuracy(tested)
    assert expected > 0.9
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 1, "worker": 2})
        strategy = tf.distribute.ParameterServerStrategy(servers[0].cluster_spec)
        stack.callback(strategy.close)
        model = example.train_on_workers(strategy, trained, N_STEPS, show=lambda _: None)
        assert int(model.optimizer.iterations.numpy()) == N_STEPS
        assert model.accuracy(tested) >= expected - 0.01
