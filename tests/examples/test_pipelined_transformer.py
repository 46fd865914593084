"""The example of a pipelined transformer: what it prints adds up, and what crosses devices."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import jflow as tf
from tests.examples.modules import module_of
from tests.scripts import run_script

pytest.importorskip("flax", reason="flax is not installed")

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "pipelined_transformer.py"
N_MICROBATCHES, WIDTH = 2, 32
UNTRAINED = 4.2
"""The loss of equal probabilities: the logarithm of the number of characters, 68."""


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return module_of(EXAMPLE)


def losses(label: str, text: str) -> list[float]:
    """The losses of the lines that begin with a pattern."""
    return [float(loss) for loss in re.findall(rf"^{label}: loss (\d+\.\d+)", text, re.M)]


def run_example(*options: str) -> str:
    """Runs the example with a small model; returns what it prints."""
    sizes = ("--steps", "20", "--microbatches", str(N_MICROBATCHES), "--width", str(WIDTH))
    run = run_script(EXAMPLE, *sizes, *options)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_it_learns_and_continues_from_the_checkpoint_in_fewer_stages() -> None:
    printed = run_example()
    assert "/job:worker/task:1 is lost, and with it half of the model" in printed
    trained = losses(r"step \d+", printed)
    assert trained[0] > UNTRAINED
    assert trained[-1] < UNTRAINED - 0.8
    before, after = losses("step 10", printed)
    assert after == pytest.approx(before, abs=2e-4)


@pytest.mark.long
def test_other_ways_to_make_a_step_have_the_same_losses() -> None:
    first, *others = losses("(?:scan|Python loop) .*", run_example("--compare"))
    assert others == pytest.approx([first] * 3, abs=2e-4)


def test_only_activations_and_their_gradients_are_sent(example: ModuleType) -> None:
    texts = example.Texts(N_MICROBATCHES)
    layers = example.make_layers(texts.n_characters, WIDTH)
    with example.start_cluster() as cluster, tf.connect(cluster.target()):
        placement = example.Pipeline(layers, example.FOUR_STAGES).step.placement(texts(0))
    assert {str(device) for device in placement.values()} == {*example.FOUR_STAGES}
    sent = {
        (tensor, placement[op])
        for op in placement
        for tensor in op.inputs
        if tensor.op in placement and placement[tensor.op] != placement[op]
    }
    # Each stage but the last sends its activations, and each but the first their gradients; the
    # number of the iteration, which the last one takes the wanted texts by, is a scalar.
    shapes = sorted(tensor.shape for tensor, _ in sent)
    assert shapes == [()] + [(example.BATCH, example.LENGTH, WIDTH)] * 6
