"""Runs in which processes are killed, computed again from their logs: every bit is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.client.session import Session
from jflow.launch.testing.waiting import wait_until
from jflow.testing import Kill, ProcessCluster, ProgramProcess
from tests.programs import recorded_learner
from tests.scripts import script_process

N_CLOSURES = 60


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessCluster]:
    with ProcessCluster(ps=2, workers=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(processes: ProcessCluster) -> Iterator[ProcessCluster]:
    yield processes
    Session.reset(processes.target("ps", 0), [])


def network(weights: Any, x: Any) -> Any:
    return jnp.tanh(x @ weights[0]) @ weights[1]


def trained(
    coordinator: Any, effects: str, at_half_time: Callable[[], object]
) -> dict[str, np.ndarray[Any, Any]]:
    """Trains a network asynchronously; returns the values of all variables."""
    rng = np.random.default_rng(7)
    shapes = ((16, 32), (32, 4))
    with coordinator.strategy.scope():
        first = [rng.normal(size=shape).astype(np.float32) * 0.3 for shape in shapes]
        weights = [tf.Variable(one, name=f"w{i}") for i, one in enumerate(first)]
        optimizer = tf.train.MomentumOptimizer(0.05, 0.9)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        def loss(values: Any) -> Any:
            return jnp.mean((network(values, x) - y) ** 2)

        value, gradients = jax.value_and_grad(loss)([one.value() for one in weights])
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return value

    def schedule(n: int) -> list[Any]:
        xs = rng.normal(size=(n, 8, 16)).astype(np.float32)
        ys = rng.normal(size=(n, 8, 4)).astype(np.float32)
        return [
            coordinator.schedule(step, (x, y), effects=effects) for x, y in zip(xs, ys, strict=True)
        ]

    values = schedule(N_CLOSURES)
    coordinator.fetch(values[: N_CLOSURES // 4])
    at_half_time()
    values += schedule(N_CLOSURES)
    coordinator.join()
    assert all(np.isfinite(value.fetch()) for value in values)
    variables = [*weights, *optimizer.variables()]
    return {one.name.removesuffix(":0"): np.asarray(one.value()) for one in variables}


def check_equal(
    replay: tf.Replay, expected: dict[str, np.ndarray[Any, Any]], *problems: str
) -> list[tf.ReplayedStep]:
    steps = [*replay]
    assert replay.problems == [*problems]
    assert not sum(step.n_different for step in steps)
    for name, value in expected.items():
        np.testing.assert_array_equal(replay.value(name), value, strict=True)
    return steps


@pytest.mark.parametrize("effects", ["at_least_once", "exactly_once"])
def test_asynchronous_training_with_a_killed_worker(
    cluster: ProcessCluster, tmp_path: Path, effects: str
) -> None:
    path = str(tmp_path / "run.jlog")
    config = tf.ConfigProto(record=path)
    strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec, config=config)

    def kill() -> None:
        cluster.kill("worker", 1)
        cluster.restart("worker", 1)

    with tf.distribute.coordinator.ClusterCoordinator(strategy) as coordinator:
        expected = trained(coordinator, effects, kill)
    strategy.close()
    with tf.Replay(path) as replay:
        steps = check_equal(replay, expected)
    updates = [step for step in steps if "w0" in step.updated and not step.was_cut_off]
    assert len(updates) >= 2 * N_CLOSURES
    if effects == "exactly_once":
        assert len(updates) == 2 * N_CLOSURES + 1  # and the initial value
    assert max(step.staleness for step in updates) > 0
    assert sum(step.n_compared for step in steps) > N_CLOSURES


def test_a_step_whose_worker_is_killed_between_its_two_updates(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    path = str(tmp_path / "run.jlog")
    strategy = tf.distribute.ParameterServerStrategy(
        cluster.cluster_spec, config=tf.ConfigProto(record=path)
    )
    with tf.distribute.coordinator.ClusterCoordinator(strategy) as coordinator:
        with coordinator.strategy.scope():
            a, b = (tf.Variable(0.0, name=name) for name in "ab")
            with tf.device("/job:ps/task:1"):
                gate = tf.FIFOQueue(10, [tf.float32], [[]], shared_name="gate")

        @tf.function
        def step() -> None:
            a.assign_add(1.0)
            b.assign_add(gate.dequeue())

        coordinator.schedule(step)
        wait_until(lambda: a.value() == 1.0, "the first update")
        worker = next(n for n in (0, 1) if len(coordinator._engine._scheduler.attempts.of(n)))
        cluster.kill("worker", worker)
        wait_until(lambda: a.value() == 2.0, "the step to run elsewhere")
        gate.enqueue(5.0)
        coordinator.join()
        assert (a.value(), b.value()) == (2.0, 5.0)
        cluster.restart("worker", worker)
    strategy.close()
    with tf.Replay(path) as replay:
        steps = check_equal(replay, {"a": np.float32(2.0), "b": np.float32(5.0)})
    assert [step.updated for step in steps if step.was_cut_off] == [("a",)]
    assert [step.updated for step in steps if not step.was_cut_off].count(("a", "b")) == 1


@pytest.mark.parametrize("where", ["master.before_commit", "master.after_commit"])
def test_a_step_applied_once_whose_master_is_killed_when_it_commits(
    tmp_path: Path, where: str
) -> None:
    path = str(tmp_path / "run.jlog")
    with ProcessCluster(2, 1, points={"/job:worker/task:0": {where: Kill()}}) as cluster:
        config = tf.ConfigProto(record=path)
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec, config=config)
        with tf.distribute.coordinator.ClusterCoordinator(strategy) as coordinator:
            with coordinator.strategy.scope():
                a, b = (tf.Variable(np.ones(3, np.float32), name=name) for name in "ab")

            @tf.function
            def step(x: Any) -> None:
                a.assign(jnp.sin(a.value()) + b.value() * x)
                b.assign_add(a.value())

            for x in (2.0, 3.0):
                coordinator.schedule(step, (x,), effects="exactly_once")
            cluster.wait_until_ended("worker", 0)
            cluster.restart("worker", 0)
            coordinator.join()
            expected = {"a": np.asarray(a.value()), "b": np.asarray(b.value())}
        strategy.close()
    with tf.Replay(path) as replay:
        steps = check_equal(replay, expected)
    assert [step.updated for step in steps].count(("a", "b")) == 2


def test_learners_of_which_one_is_killed(cluster: ProcessCluster, tmp_path: Path) -> None:
    target = cluster.target("ps", 0)
    program = Path(__file__).parents[2] / "programs" / "recorded_learner.py"
    logs = [str(tmp_path / f"learner{i}.jlog") for i in range(3)]

    def start(number: int) -> ProgramProcess:
        return script_process(program, target, logs[number], str(number), "8", "0.01")

    with tf.connect(target, tf.ConfigProto(record=str(tmp_path / "own.jlog"))):
        model = recorded_learner.opened()
        learners = [start(i) for i in range(3)]
        try:
            wait_until(lambda: min(model.n_merges()) >= 3, "some merges")
            learners[2].kill()
            for learner in learners[:2]:
                assert not learner.wait()
        finally:
            for learner in learners:
                learner.close()
        n_merges, expected = model.n_merges(), model.value()
    assert min(n_merges) >= 8
    with tf.Replay(str(tmp_path / "own.jlog"), *logs) as replay:
        values = {f"model/params/{key}": value for key, value in expected.items()}
        was_cut = f"{logs[2]} was cut: its program was killed, or still runs"
        steps = check_equal(replay, values, was_cut)
    assert any(step.updated and step.program == logs[2] for step in steps)
