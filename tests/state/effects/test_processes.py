"""Workers that are killed in the middle of a step, on processes of their own."""

from __future__ import annotations

import pytest

import jflow as tf
from jflow.state.effects import Effect
from jflow.testing import Kill, ProcessCluster
from tests.state.effects.attempts import Counters, attempt

FIRST, STEP = "/job:worker/task:0", Effect("client", 0, 0)


@pytest.mark.long
@pytest.mark.parametrize("where", ["master.before_commit", "master.after_commit"])
def test_a_step_whose_master_is_killed_is_applied_once_by_the_next_attempt(where: str) -> None:
    counters = Counters(worker="")
    with (
        ProcessCluster(2, 2, points={FIRST: {where: Kill()}}) as cluster,
        tf.Session(cluster.target("worker", 1)) as second,
    ):
        second.run(tf.global_variables_initializer())
        with (
            tf.Session(cluster.target("worker", 0)) as first,
            pytest.raises(tf.errors.UnavailableError),
        ):
            attempt(first, counters.both, STEP)
        assert second.run(counters.values) in ([0.0, 0.0], [1.0, 1.0])
        assert attempt(second, counters.both, STEP.again()) == 1.0
        assert second.run(counters.values) == [1.0, 1.0]
