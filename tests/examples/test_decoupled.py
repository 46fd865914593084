"""The example of decoupled training is as accurate as one process, with slow and lost learners."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import ModuleType

import numpy as np
import pytest

import jflow as tf
from jflow.testing import PATIENCE_S
from tests.examples.modules import module_of
from tests.scripts import run_script

EXAMPLE = Path(__file__).parents[2] / "examples" / "decoupled.py"
N_SEEDS, N_STEPS = 5, 300


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return module_of(EXAMPLE)


@pytest.mark.long
def test_processes_learn_although_one_is_slow_one_is_killed_and_one_is_late() -> None:
    run = run_script(EXAMPLE, "--steps", "150")
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("ends after 150 steps") == 3
    together = re.search(r"accuracy of learners apart (\S+)", run.stdout)
    assert together is not None
    assert float(together[1]) > 0.9


def learned_apart(example: ModuleType, seed: int) -> float:
    """The accuracy after learners of different speed, one of which is lost and one is late."""
    trained, tested = example.load_images()
    with tf.LocalCluster(ps=2, workers=0) as cluster, tf.connect(cluster.target("ps", 0)):
        model = example.open_model(seed)

        def learn(number: int, n_steps: int, pause: float) -> None:
            with model.join() as learner:
                example.learn(learner, trained, n_steps, 10 * seed + number, pause)

        lost = model.join()  # it makes a third of the steps, and never says that it ends
        example.learn(lost, trained, N_STEPS // 3, 10 * seed + 9, 0.0)
        threads = [
            Thread(target=learn, args=(0, N_STEPS, 0.002)),
            Thread(target=learn, args=(1, N_STEPS, 0.008)),
            Thread(target=learn, args=(2, N_STEPS, 0.002)),
        ]
        for thread in threads[:2]:
            thread.start()
        threads[0].join(PATIENCE_S)
        threads[2].start()
        for thread in threads[1:]:
            thread.join(PATIENCE_S)
        return float(example.accuracy(model.value(), tested))


@pytest.mark.long
def test_the_accuracy_is_that_of_one_process_within_a_point(
    example: ModuleType, record_property: Callable[[str, object], None]
) -> None:
    trained, tested = example.load_images()
    alone = [
        example.accuracy(example.learn_alone(trained, N_STEPS, seed), tested)
        for seed in range(N_SEEDS)
    ]
    apart = [learned_apart(example, seed) for seed in range(N_SEEDS)]
    means = float(np.mean(apart)), float(np.mean(alone))
    record_property("accuracies", f"{means[0]:.4f} apart, {means[1]:.4f} alone")
    assert means[0] >= means[1] - 0.01
