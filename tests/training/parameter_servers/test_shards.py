"""Partitioners of a strategy, and sharded variables over two parameter servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.distribute.experimental import partitioners
from tests.training.parameter_servers.conftest import Strategy
from tests.training.parameter_servers.test_strategy import ps_of

Make = Callable[..., Strategy]

ROWS = np.arange(20, dtype=np.float32).reshape(10, 2)


def cut_into(n: int) -> Callable[..., list[int]]:
    return lambda shape, dtype: [n, *(1 for _ in shape[1:])]


@pytest.fixture
def strategy(make_strategy: Make) -> Strategy:
    return make_strategy(cut_into(3))


@pytest.fixture
def table() -> Iterator[Any]:
    """A sharded variable in this process."""
    with tf.connect():
        yield tf.distribute.ShardedVariable(
            [
                tf.Variable(ROWS[start:end], name=f"table/part_{i}")
                for i, (start, end) in enumerate([(0, 4), (4, 7), (7, 10)])
            ]
        )


# Partitioners -------------------------------------------------------------------------------------


def test_the_first_shards_have_one_row_more_and_each_advances_the_turn(strategy: Strategy) -> None:
    with strategy.scope():
        table = tf.Variable(ROWS, name="table")
        after = tf.Variable([1.0])
        scalar = tf.Variable(2.0)
    assert isinstance(table, tf.distribute.ShardedVariable)
    assert [shard.shape for shard in table.variables] == [(4, 2), (3, 2), (3, 2)]
    assert [shard.name for shard in table] == [f"table/part_{i}:0" for i in range(3)]
    assert [*map(ps_of, table)] == ["ps:0", "ps:1", "ps:0"]
    assert (table.name, table.shape, table.dtype, len(table)) == ("table", (10, 2), tf.float32, 3)
    assert not isinstance(after, tf.distribute.ShardedVariable), "it has one row"
    assert [ps_of(after), ps_of(scalar)] == ["ps:1", "ps:0"]


def test_a_partitioner_is_asked_for_each_variable_of_rank_1_or_more(make_strategy: Make) -> None:
    requested = []

    def partitioner(shape: Sequence[int], dtype: Any) -> list[int]:
        requested.append((tuple(shape), dtype))
        return [2] if len(shape) == 1 else [1, 1]

    strategy = make_strategy(partitioner)
    with strategy.scope():
        made = [tf.Variable(np.zeros(s, np.float32)) for s in ((), (3,), (2, 2))]
        with strategy.extended.colocate_vars_with(made[0]):
            made.append(tf.Variable([1, 2]))
    assert requested == [((3,), np.float32), ((2, 2), np.float32)]
    is_cut = [isinstance(each, tf.distribute.ShardedVariable) for each in made]
    assert is_cut == [False, True, False, False]


@pytest.mark.parametrize("answer", [None, 2, [], [0], [1, 2], ["2"], [2, 1]])
def test_a_wrong_answer_of_a_partitioner_is_refused(make_strategy: Make, answer: Any) -> None:
    strategy = make_strategy(lambda shape, dtype: answer)
    with strategy.scope(), pytest.raises(ValueError, match="variable_partitioner must return"):
        tf.Variable([1.0, 2.0, 3.0])


def test_a_variable_needs_an_initial_value(strategy: Strategy) -> None:
    with strategy.scope(), pytest.raises(ValueError, match="needs an initial value"):
        tf.Variable(None)


def test_initializers_that_know_shards_compute_each_and_of_others_rows_are_taken(
    strategy: Strategy,
) -> None:
    parts = []

    def knowing(
        shape: Any = (4, 2), partition_shape: Any = None, partition_offset: Any = None
    ) -> Any:
        if partition_shape is None:
            return jnp.zeros(shape)
        parts.append((partition_shape, partition_offset))
        return jnp.full(partition_shape, partition_offset[0], jnp.float32)

    with strategy.scope():
        first = tf.Variable(knowing)
        second = tf.Variable(partial(jnp.reshape, jnp.arange(8), (4, 2)))
        third = tf.Variable(partial(tf.initializers.identity(), (5, 3)))
        fourth = tf.get_variable("fourth", [5, 3], initializer=tf.initializers.identity())
    assert isinstance(fourth, tf.distribute.ShardedVariable)
    assert fourth.numpy().tolist() == np.eye(5, 3).tolist()
    assert {*parts} == {((2, 2), (0, 0)), ((1, 2), (2, 0)), ((1, 2), (3, 0))}
    assert first.numpy()[:, 0].tolist() == [0, 0, 2, 3]
    assert second.numpy().tolist() == np.arange(8).reshape(4, 2).tolist()
    assert third.numpy().tolist() == np.eye(5, 3).tolist()


def test_the_partitioners_of_tensorflow() -> None:
    fixed = partitioners.FixedShardsPartitioner(3)
    assert (fixed((10, 2), tf.float32), fixed((2,), tf.float32)) == ([3, 1], [2])
    least = partitioners.MinSizePartitioner(min_shard_bytes=40, max_shards=4)
    assert [least((n, 1), tf.float32) for n in (10, 30, 90)] == [[1, 1], [3, 1], [4, 1]]
    assert partitioners.MinSizePartitioner()((1 << 20,), tf.float32) == [1]
    most = partitioners.MaxSizePartitioner(max_shard_bytes=40)
    assert [most((n, 1), tf.float32) for n in (10, 30, 90)] == [[1, 1], [3, 1], [9, 1]]
    assert partitioners.MaxSizePartitioner(40, max_shards=2)((90, 1), tf.float32) == [2, 1]
    assert isinstance(most, partitioners.Partitioner)


@pytest.mark.parametrize(
    "make",
    [
        lambda: partitioners.FixedShardsPartitioner(0),
        lambda: partitioners.MinSizePartitioner(min_shard_bytes=0),
        lambda: partitioners.MinSizePartitioner(max_shards=0),
        lambda: partitioners.MaxSizePartitioner(0),
        lambda: partitioners.MaxSizePartitioner(1, bytes_per_string=-1),
    ],
)
def test_sizes_of_partitioners_must_be_positive(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        make()


# Sharded variables --------------------------------------------------------------------------------


def test_it_is_an_array_of_all_rows(table: Any) -> None:
    np.testing.assert_array_equal(table.numpy(), ROWS)
    np.testing.assert_array_equal(np.asarray(table), ROWS)
    np.testing.assert_array_equal(table + 1, ROWS + 1)
    np.testing.assert_array_equal(tf.numpy.sum(table, axis=0), ROWS.sum(axis=0))
    assert repr(table) == "<jflow.ShardedVariable 'table' shape=(10, 2) dtype=float32 shards=3>"


def test_slices_are_those_of_numpy_and_integers_out_of_range_are_refused(table: Any) -> None:
    slices = [
        *(slice(None), slice(1, None, 3), slice(8, 2), slice(-3, None), slice(None, None, -1)),
        *(slice(0, 4), slice(5, 6), 0, 9, -1, (slice(2, 8), 1), (3, slice(None)), (..., 0)),
        np.array([8, 0]),
    ]
    for each, value in zip(slices, tf.function(lambda: [table[i] for i in slices])(), strict=True):
        np.testing.assert_array_equal(value, ROWS[each])
    for outside in (10, -11):
        with pytest.raises(IndexError, match="10 rows"):
            table[outside]


def test_rows_are_read_where_they_are(strategy: Strategy) -> None:
    ids = jnp.array([[9, 0], [4, 3]])

    @tf.function
    def look_up(ids: Any) -> Any:
        return tf.nn.embedding_lookup(table, ids), table[5], table[4:7]

    with strategy.scope():
        table = tf.Variable(ROWS)
        np.testing.assert_array_equal(look_up(ids)[0], ROWS[np.asarray(ids)])
        placed = look_up.placement(ids)
    values = [op for op in placed if op.type == "read"]
    assert [device.task.index for op in values for device in [placed[op]]].count(1) == 3
    # What leaves a parameter server are rows: no read is used by an operation elsewhere.
    users = [(op, read) for op in placed for read in values if read.outputs[0] in op.inputs]
    assert users
    assert all(placed[op] == placed[read] for op, read in users)


def test_assignments_reach_each_shard(table: Any) -> None:
    @tf.function
    def update(delta: Any) -> Any:
        table.assign_add(delta)
        table.assign_sub(np.array([[1.0, 0.0]], np.float32))
        table.assign_add(1.0)
        return table

    whole = update(ROWS)
    np.testing.assert_array_equal(whole, 2 * ROWS + np.array([0.0, 1.0]))
    assert table.assign(ROWS) is table
    np.testing.assert_array_equal(table, ROWS)
    with pytest.raises(ValueError, match="does not fit"):
        table.assign(ROWS[:3])
    with pytest.raises(ValueError, match="does not fit"):
        table.assign_add(ROWS[:3])


def test_scatter_updates_reach_the_rows(table: Any) -> None:
    methods = ["update", "add", "sub", "mul", "div", "min", "max"]
    ids = [np.roll(np.array([9, 0, 4, 5]), i) for i in range(7)]
    updates = [np.array([[2, 10]] * 4, np.float32) + i for i in range(7)]

    def apply(variable: Any) -> None:
        for method, at, values in zip(methods, ids, updates, strict=True):
            getattr(variable, f"scatter_{method}")(at, values)

    plain = tf.Variable(ROWS)
    tf.function(lambda: apply(table))()
    tf.function(lambda: apply(plain))()
    assert not np.array_equal(plain, ROWS)
    np.testing.assert_array_equal(table, plain)


def test_an_index_that_occurs_twice_counts_twice_and_one_out_of_range_writes_nothing(
    table: Any,
) -> None:
    @tf.function
    def add(ids: Any) -> None:
        table.scatter_add(ids, jnp.ones((3, 2)))

    add(jnp.array([3, 3, 8]))
    expected = ROWS.copy()
    np.add.at(expected, [3, 3, 8], 1)
    np.testing.assert_array_equal(table, expected)
    with pytest.raises(tf.errors.InvalidArgumentError, match="10 is not in"):
        add(jnp.array([3, 10, 8]))
    np.testing.assert_array_equal(table, expected)
    table.scatter_add(SimpleNamespace(values=jnp.ones((1, 2)), indices=jnp.array([0])))
    assert table[0].tolist() == [1.0, 2.0]
    with pytest.raises(TypeError, match="must be integers"):
        table.scatter_add(np.array([0.5]), np.ones((1, 2)))
    with pytest.raises(ValueError, match="need updates of shape"):
        table.scatter_add(np.array([0]), np.ones((1, 3)))


def test_an_id_out_of_range_gives_nan_and_long_rows_are_scaled(table: Any) -> None:
    found = tf.function(lambda: tf.nn.embedding_lookup(table, [10, -1, 9, 0], max_norm=5.0))()
    assert np.isnan(found[:2]).all()
    scaled = [ROWS[9] * 5 / np.linalg.norm(ROWS[9]), ROWS[0]]
    np.testing.assert_allclose(found[2:], scaled, rtol=1e-6)
    with pytest.raises(TypeError, match="must be integers"):
        tf.nn.embedding_lookup(table, [0.5])


def test_it_is_an_argument_of_functions_and_of_gradients(table: Any) -> None:
    value, slope = tf.value_and_grad(lambda w: jnp.sum(w * w))(table)
    assert float(tf.function(lambda w: w.value().sum())(table)) == ROWS.sum()
    assert float(value) == (ROWS**2).sum()
    np.testing.assert_array_equal(slope, 2 * ROWS)


def test_a_checkpoint_has_one_value_for_any_number_of_shards(
    make_strategy: Make, table: Any, tmp_path: Path
) -> None:
    path = tmp_path / "saved"
    tf.checkpoint.save(path, {"weights": table})
    for n in (1, 4):
        with make_strategy(cut_into(n)).scope():
            other = tf.Variable(np.zeros((10, 2), np.float32))
        tf.checkpoint.restore(path, {"weights": other})
        np.testing.assert_array_equal(np.asarray(other), ROWS)


def test_shards_that_do_not_fit_together_are_refused() -> None:
    sharded = tf.distribute.ShardedVariable
    with pytest.raises(ValueError, match="at least one shard"):
        sharded([])
    with pytest.raises(TypeError, match="eager variables"):
        sharded([tf.Variable(1.0)])
    with tf.connect():
        with pytest.raises(ValueError, match="one dtype"):
            sharded([tf.Variable([1.0]), tf.Variable([1])])
        with pytest.raises(ValueError, match="first dimension only"):
            sharded([tf.Variable([[1.0]]), tf.Variable([[1.0, 2.0]])])
        joined = sharded([tf.Variable([1.0]), tf.Variable([2.0, 3.0])], name="joined")
        assert (joined.name, joined.numpy().tolist()) == ("joined", [1.0, 2.0, 3.0])
        assert jax.tree.leaves(joined) == [joined]
