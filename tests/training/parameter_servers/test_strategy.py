"""ParameterServerStrategy: its checks, where variables go, per-worker variables, run, datasets."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import ClusterSpec, Device, Task
from jflow.training.parameter_servers.replicas import n_replicas_of
from tests.training.parameter_servers.conftest import Strategy

Make = Callable[..., Strategy]


def ps_of(variable: Any) -> str:
    """The task of a variable, such as "ps:1"; it must be on CPU 0."""
    device = Device.parse(variable.device)
    assert (device.type, device.index) == ("CPU", 0)
    return f"{device.task.job}:{device.task.index}"


# Checks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ({}, "Cluster spec must be non-empty"),
        ({"worker": ["a:1"]}, "There must be at least one ps"),
        ({"ps": ["a:1"]}, "There must be at least one worker"),
        ({"ps": ["a:1"], "worker": ["b:1"], "other": ["c:1"]}, "Disallowed task type .*: other"),
        ({"ps": ["a:1"], "worker": ["b:1"], "chief": ["c:1", "d:1"]}, "at most one 'chief'"),
    ],
)
def test_a_cluster_that_cannot_train_is_refused(jobs: Any, message: str) -> None:
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(jobs))
    with pytest.raises(ValueError, match=message):
        Strategy(resolver)


def test_an_unknown_task_type_of_the_resolver_is_refused(cluster: ClusterSpec) -> None:
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, task_type="boss")
    with pytest.raises(ValueError, match="Unrecognized task_type: 'boss'"):
        Strategy(resolver)


def test_what_is_no_cluster_is_refused() -> None:
    with pytest.raises(TypeError, match="cluster resolver"):
        Strategy(3)
    with pytest.raises(TypeError, match=r"must be a jflow\.train\.ClusterSpec"):
        tf.distribute.cluster_resolver.SimpleClusterResolver({"ps": ["a:1"]})  # type: ignore[arg-type]


def test_other_arguments_are_checked(cluster: ClusterSpec) -> None:
    with pytest.raises(TypeError, match="variable_partitioner"):
        Strategy(cluster, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="round_robin"):
        Strategy(cluster, variable_placement="best")


def test_a_strategy_finds_its_cluster_in_tf_config(
    monkeypatch: pytest.MonkeyPatch, cluster: ClusterSpec
) -> None:
    task = {"type": "chief", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster.as_dict(), "task": task}))
    strategy = tf.distribute.experimental.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver()
    )
    assert strategy.cluster_spec == cluster
    assert strategy.worker_tasks == (Task("worker", 0), Task("worker", 1))
    strategy.close()


# scope --------------------------------------------------------------------------------------------


def test_variables_take_the_parameter_servers_in_turn_whatever_devices_are_inside(
    strategy: Strategy,
) -> None:
    with strategy.scope() as entered:
        assert entered is strategy
        first = tf.Variable(1.0)
        with tf.device("/job:worker/task:1"):
            second = tf.Variable(2)
        third = tf.get_variable("third", [2])
    with strategy.scope():
        fourth = tf.Variable(lambda: jnp.ones(3))
    assert [*map(ps_of, (first, second, third, fourth))] == ["ps:0", "ps:1", "ps:0", "ps:1"]
    assert fourth.numpy().tolist() == [1.0, 1.0, 1.0]


def test_each_strategy_counts_by_itself_and_only_its_own_variables(make_strategy: Make) -> None:
    one, other = make_strategy(), make_strategy()
    with one.scope():
        tf.Variable(0)
    outside = tf.Variable(0)
    with one.scope(), tf.Graph().as_default():
        in_graph = tf.Variable(0)
    with one.scope():
        second = tf.Variable(0)
    with other.scope():
        first = tf.Variable(0)
    assert (ps_of(second), ps_of(first)) == ("ps:1", "ps:0")
    assert not outside.is_eager
    assert not in_graph.is_eager
    assert one.variable_created_in_scope(second)
    assert not one.extended.variable_created_in_scope(first)


def test_a_creator_around_the_scope_is_obeyed_and_one_inside_is_not(strategy: Strategy) -> None:
    seen = []

    def on_second(next_creator: Any, **arguments: Any) -> Any:
        seen.append(arguments["initial_value"])
        with tf.device("/job:ps/task:1"):
            return next_creator(**arguments)

    with tf.variable_creator_scope(on_second), strategy.scope():
        around = tf.Variable(0)
    with strategy.scope():
        tf.Variable(0)
        with tf.variable_creator_scope(on_second):
            inside = tf.Variable(5)
    assert [ps_of(around), ps_of(inside)] == ["ps:1", "ps:0"]
    assert seen == [0, 5]


def test_colocated_variables_do_not_count(strategy: Strategy) -> None:
    with strategy.scope():
        first = tf.Variable(0)
        with strategy.extended.colocate_vars_with(first):
            beside = tf.Variable(1)
        second = tf.Variable(2)
    assert [*map(ps_of, (first, beside, second))] == ["ps:0", "ps:0", "ps:1"]


def test_scopes_of_two_strategies_do_not_nest(make_strategy: Make) -> None:
    one, other = make_strategy(), make_strategy()
    with one.scope(), one.scope():
        pass
    with one.scope(), pytest.raises(RuntimeError, match="another strategy"), other.scope():
        pass


def test_variables_by_size_go_where_the_fewest_bytes_are(make_strategy: Make) -> None:
    strategy = make_strategy(variable_placement="by_size")
    with strategy.scope():
        made = [tf.Variable(np.zeros(n, np.float32)) for n in (10, 4, 4, 4, 1)]
    assert [*map(ps_of, made)] == ["ps:0", "ps:1", "ps:1", "ps:1", "ps:0"]


def test_a_function_can_place_variables(make_strategy: Make) -> None:
    strategy = make_strategy(variable_placement=lambda shape, dtype: len(shape))
    with strategy.scope():
        assert [ps_of(tf.Variable(0)), ps_of(tf.Variable([0]))] == ["ps:0", "ps:1"]
        with pytest.raises(ValueError, match="from 0 to 1, got 2"):
            tf.Variable([[0]])


def test_a_variable_is_found_again_by_its_name(make_strategy: Make) -> None:
    with make_strategy().scope():
        tf.Variable(1, name="n").assign(5)
    with make_strategy().scope():
        assert tf.Variable(1, name="n").numpy() == 5


# Per-worker variables -----------------------------------------------------------------------------


def test_each_worker_has_a_per_worker_variable_of_its_own(strategy: Strategy) -> None:
    with strategy.scope():
        counts = tf.Variable(7, per_worker_variable=True)  # type: ignore[call-arg]
        after = tf.Variable(0)
    assert ps_of(after) == "ps:0", "it does not count as a turn"

    @tf.function
    def add() -> Any:
        return counts.assign_add(2)

    with tf.distribute.coordinator.ClusterCoordinator(strategy) as coordinator:
        for worker in (1, 0, 1, 1):
            coordinator.schedule(add, worker=worker)
        coordinator.join()
    assert [int(value) for value in counts.read_all()] == [9, 13]


def test_a_per_worker_variable_has_no_value_outside_of_workers(strategy: Strategy) -> None:
    with strategy.scope():
        counts = tf.Variable(7, per_worker_variable=True)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="read_all"):
        counts.value()
    assert "PerWorkerVariable" in repr(counts)


def test_a_worker_that_was_reset_gets_its_variable_again(
    strategy: Strategy, cluster: ClusterSpec
) -> None:
    with strategy.scope():
        counts = tf.Variable(7, per_worker_variable=True)  # type: ignore[call-arg]
    tf.Session.reset(strategy.target_of(Task("worker", 0)))
    with pytest.raises(tf.errors.FailedPreconditionError):
        counts.read_all()
    for task in strategy.worker_tasks:
        strategy.prepare_worker(task)
    assert [int(value) for value in counts.read_all()] == [7, 7]


# run, reduce --------------------------------------------------------------------------------------


def test_run_in_a_function_calls_it_and_outside_warns(
    strategy: Strategy, caplog: pytest.LogCaptureFixture
) -> None:
    with strategy.scope():
        total = tf.Variable(1.0)

        @tf.function
        def step(x: Any) -> Any:
            return strategy.run(lambda x, by: total.assign_add(x * by), (x,), {"by": 3})

        with caplog.at_level(logging.WARNING):
            assert float(step(2.0)) == 7.0
            assert not caplog.records
            assert strategy.run(lambda x: x + 1, (1,)) == 2
    assert "outside of a function that a coordinator" in caplog.text


def test_there_is_one_replica_without_gpus_else_one_for_each(strategy: Strategy) -> None:
    assert strategy.num_replicas_in_sync == 1
    gpus = [Device.parse(f"/job:worker/task:{i // 2}/device:GPU:{i % 2}") for i in range(4)]
    assert n_replicas_of(gpus) == 2
    with pytest.raises(ValueError, match="same number of GPUs"):
        n_replicas_of(gpus[:3])
    assert n_replicas_of([]) is None


def test_several_replicas_run_on_their_own_values(
    strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Strategy, "num_replicas_in_sync", 2)

    @jax.jit
    def step(x: Any) -> Any:
        each = strategy.run(lambda x, y: {"sum": x + y}, (tf.distribute.PerReplica((x, 2 * x)), 1))
        assert [*map(jnp.shape, strategy.experimental_local_results(each["sum"]))] == [(), ()]
        return strategy.reduce("SUM", each), strategy.reduce(tf.distribute.ReduceOp.MEAN, each)

    total, mean = step(3.0)
    assert (float(total["sum"]), float(mean["sum"])) == (11.0, 5.5)


def test_reduce_sums_or_averages_over_an_axis(strategy: Strategy) -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    assert strategy.reduce("SUM", x) is x
    assert strategy.reduce("MEAN", x, axis=0).tolist() == [1.5, 2.5, 3.5]
    assert strategy.reduce("SUM", tf.distribute.PerReplica((x, x)), axis=0).tolist() == [6, 10, 14]
    with pytest.raises(ValueError, match="ReduceOp"):
        strategy.reduce("MAX", x)


# Datasets -----------------------------------------------------------------------------------------


def test_a_distributed_dataset_has_elements_on_workers_only(strategy: Strategy) -> None:
    dataset = strategy.experimental_distribute_dataset(tf.data.from_tensor_slices([1, 2]))
    with pytest.raises(ValueError, match="create_per_worker_dataset"):
        iter(dataset)
    assert [[int(x) for x in dataset.for_worker(i)] for i in (0, 1)] == [[1, 2], [1, 2]]
    with pytest.raises(TypeError, match=r"jflow\.data\.Dataset"):
        strategy.experimental_distribute_dataset([1, 2])  # type: ignore[arg-type]


def test_a_function_makes_the_dataset_of_each_worker(strategy: Strategy) -> None:
    def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
        assert context.get_per_replica_batch_size(8) == 8
        whole = tf.data.Dataset.range(5)
        return whole.shard(context.num_input_pipelines, context.input_pipeline_id)

    dataset = strategy.distribute_datasets_from_function(make)
    with pytest.raises(ValueError, match="create_per_worker_dataset"):
        iter(dataset)
    assert [[int(x) for x in dataset.for_worker(i)] for i in (0, 1)] == [[0, 2, 4], [1, 3]]
    with pytest.raises(TypeError, match="function that makes a dataset"):
        strategy.distribute_datasets_from_function(3)  # type: ignore[arg-type]
    wrong = strategy.distribute_datasets_from_function(lambda _: [1])  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="to return a"):
        wrong.for_worker(0)


def test_a_batch_that_replicas_cannot_share_is_refused() -> None:
    with pytest.raises(ValueError, match="3 replicas"):
        tf.distribute.InputContext(num_replicas_in_sync=3).get_per_replica_batch_size(8)
