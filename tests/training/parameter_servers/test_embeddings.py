"""Tables of embeddings, in shards and whole, beside a dictionary of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jflow as tf
from jflow.base.cluster import ClusterSpec
from jflow.client.session import Session
from jflow.testing import PATIENCE_S, ProcessCluster, start_servers, wait_until
from jflow.training.parameter_servers import ParameterServerStrategy
from tests.drawn import examples

N_ROWS, FEATURES, N_IDS = 11, 3, 6
RULES = {
    "sgd": optax.sgd(0.5),
    "momentum": optax.sgd(0.5, momentum=0.9),
    "adagrad": optax.adagrad(0.5),
}
FixedShards = tf.distribute.experimental.partitioners.FixedShardsPartitioner


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSpec]:
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 2, "worker": 1})
        yield servers[0].cluster_spec


@pytest.fixture(scope="module", params=[1, 3])
def strategy(cluster: ClusterSpec, request: pytest.FixtureRequest) -> Iterator[Any]:
    strategy = ParameterServerStrategy(cluster, variable_partitioner=FixedShards(request.param))
    yield strategy
    strategy.close()
    for task in range(2):
        Session.reset(f"grpc://{cluster.task_address('ps', task)}", [])


class Trained:
    """A table with an optimizer, and the same as a dictionary of rows with a state for each."""

    def __init__(self, strategy: Any, name: str, rule: Any) -> None:
        self.start = np.random.default_rng(0).normal(size=(N_ROWS, FEATURES)).astype(np.float32)
        self._strategy, self._init = strategy, rule.init

        @jax.jit
        def updated(slope: Any, state: Any, row: Any) -> Any:
            updates, state = rule.update(jnp.full(FEATURES, slope), state, row)
            return optax.apply_updates(row, updates), state

        self._updated = updated
        with strategy.scope():
            self.embedding = tf.nn.Embedding(N_ROWS, FEATURES, name)
            optimizer = tf.train.Optimizer(rule)
            optimizer.build([self.embedding.table])
            slots = [*optimizer.variables()]
            first = [v.numpy() for v in slots]

        @tf.function
        def reset() -> None:
            self.embedding.table.assign(self.start)
            for slot, value in zip(slots, first, strict=True):
                slot.assign(value)

        @tf.function
        def step(ids: Any, weights: Any) -> Any:
            def loss() -> Any:
                return jnp.sum(jnp.nan_to_num(self.embedding(ids)) * weights[:, None])

            return optimizer.minimize(loss, var_list=[self.embedding.table])

        self._reset, self._step = reset, step

    def reset(self) -> None:
        with self._strategy.scope():
            self._reset()
        self.rows = dict(enumerate(self.start))
        self.states = {number: self._init(row) for number, row in self.rows.items()}

    def step(self, ids: list[int], weights: list[float]) -> None:
        with self._strategy.scope():
            self._step(np.int32(ids), np.float32(weights))
        for number in {*ids} & self.rows.keys():
            slope = sum(w for i, w in zip(ids, weights, strict=True) if i == number)
            self.rows[number], self.states[number] = self._updated(
                np.float32(slope), self.states[number], self.rows[number]
            )

    def value(self) -> Any:
        with self._strategy.scope():
            return self.embedding.table.numpy()


@pytest.mark.parametrize("rule", RULES)
def test_a_table_is_a_dictionary_of_rows(strategy: Any, rule: str) -> None:
    trained = Trained(strategy, f"table_{rule}", RULES[rule])
    ids = st.lists(st.integers(-2, N_ROWS + 1), min_size=N_IDS, max_size=N_IDS)
    weights = st.lists(st.sampled_from([-2.0, 0.5, 1.0, 3.0]), min_size=N_IDS, max_size=N_IDS)

    @settings(max_examples=examples(10))
    @given(st.lists(st.tuples(ids, weights), max_size=4))
    def check(steps: Any) -> None:
        trained.reset()
        for batch in steps:
            trained.step(*batch)
        np.testing.assert_allclose(trained.value(), [*trained.rows.values()], rtol=2e-4, atol=1e-5)

    check()


def test_lookups_are_rows_and_those_that_it_has_not_got_are_nan(strategy: Any) -> None:
    with strategy.scope():
        embedding = tf.nn.Embedding(N_ROWS, FEATURES, "looked_up")
        ids = np.array([[0, 10, 4], [11, -1, 4]])
        found = np.asarray(tf.function(embedding)(ids))
        table = embedding.table.numpy()
        np.testing.assert_array_equal(found[0], table[[0, 10, 4]])
        assert np.isnan(found[1, :2]).all()
        np.testing.assert_array_equal(found[1, 2], table[4])
        assert np.ptp(table) > 0
        assert np.abs(table).max() <= 0.05


@pytest.mark.parametrize(
    ("strategy", "combiner", "is_weighted"),
    [
        (1, "mean", True),
        (3, "sum", False),
        (3, "mean", False),
        (3, "mean", True),
        (3, "sqrtn", True),
    ],
    indirect=["strategy"],
)
def test_bags_are_combined_without_their_empty_places(
    strategy: Any, combiner: Any, is_weighted: bool
) -> None:
    ids = np.array([[3, 3, -1], [-1, -1, -1], [0, 10, 5]])
    weights = np.float32([[1, 2, 3], [1, 1, 1], [0.5, 0.25, 2]]) if is_weighted else None

    def of(table: Any) -> Any:
        bags = []
        for bag, own in zip(ids, np.ones((3, 3)) if weights is None else weights, strict=True):
            rows = [w * table[i] for i, w in zip(bag, own, strict=True) if i >= 0]
            sizes = {
                "sum": 1.0,
                "mean": sum(w for i, w in zip(bag, own, strict=True) if i >= 0),
                "sqrtn": np.sqrt(sum(w**2 for i, w in zip(bag, own, strict=True) if i >= 0)),
            }
            bags.append(sum(rows) / sizes[combiner] if rows else jnp.zeros(FEATURES))
        return jnp.stack(bags)

    with strategy.scope():
        embedding = tf.nn.Embedding(N_ROWS, FEATURES, f"bags_{combiner}_{is_weighted}")
        optimizer = tf.train.Optimizer(optax.sgd(1.0))

        @tf.function
        def step() -> Any:
            pairs = optimizer.compute_gradients(
                lambda: jnp.sum(embedding(ids, weights, combiner) ** 2), var_list=[embedding.table]
            )
            ((slope, _),) = pairs
            assert isinstance(slope, tf.IndexedSlices)
            optimizer.apply_gradients(pairs)
            return embedding(ids, weights, combiner)

        before = embedding.table.numpy()
        slopes = jax.jit(jax.grad(lambda table: jnp.sum(of(table) ** 2)))(before)
        step()
        np.testing.assert_allclose(embedding.table.numpy(), before - slopes, rtol=1e-4, atol=1e-6)
        found = tf.function(lambda: embedding(ids, weights, combiner))()
        wanted = jax.jit(of)(embedding.table.numpy())
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_wrong_arguments_are_refused(strategy: Any) -> None:
    with pytest.raises(ValueError, match="positive numbers"):
        tf.nn.Embedding(0, 3)
    with strategy.scope():
        embedding = tf.nn.Embedding(N_ROWS, FEATURES, "refusing")
        for words, arguments in {
            "weights need a combiner": ([[1]], [[1.0]]),
            "expected a combiner of": ([[1]], None, "max"),
            r"expected weights of the shape of the ids, \(1, 2\), got \(1, 1\)": (
                np.int32([[1, 2]]),
                np.float32([[1]]),
                "sum",
            ),
        }.items():
            with pytest.raises(ValueError, match=words):
                embedding(*arguments)
        with pytest.raises(TypeError, match="ids must be integers"):
            embedding(np.float32([1]))
    assert f"{embedding!r}" == "<jflow.nn.Embedding 'refusing' of 11 rows of 3>"


@pytest.mark.parametrize(
    ("strategy", "dtype"),
    [
        *((1, dtype) for dtype in (np.int8, np.uint32, np.int64)),
        *((3, dtype) for dtype in (np.int8, np.uint8, np.int16, np.uint32, np.int64)),
    ],
    indirect=["strategy"],
)
def test_ids_of_any_type_mean_the_same_rows(strategy: Any, dtype: Any) -> None:
    with strategy.scope():
        embedding = tf.nn.Embedding(300, 2, f"narrow_{np.dtype(dtype).name}")
        table = embedding.table.numpy()
        ids = np.array([1, 100, 120], dtype)
        for found in (embedding(ids), tf.function(embedding)(ids)):
            np.testing.assert_array_equal(found, table[[1, 100, 120]])
        np.testing.assert_array_equal(tf.nn.embedding_lookup(embedding.table, ids), table[ids])
        if dtype is np.int64:
            assert np.isnan(np.asarray(embedding(np.array([2**32 + 5])))).all()


def test_weights_of_zero_and_of_half_precision() -> None:
    with tf.connect():
        embedding = tf.nn.Embedding(4, 2, initializer=tf.initializers.ones(), dtype=np.float16)
        with pytest.raises(TypeError, match="a dtype of floats"):
            tf.nn.Embedding(4, 2, dtype=np.int32)

        def of(weights: Any, combiner: Any) -> Any:
            return embedding(np.array([[0, 1]]), weights, combiner)

        np.testing.assert_allclose(of([[300.0, 300.0]], "sqrtn"), np.sqrt(2), rtol=1e-2)
        np.testing.assert_allclose(of([[70000.0, 70000.0]], "mean"), 1.0)
        slope = jax.grad(lambda w: jnp.sum(of(w, "sqrtn").astype(jnp.float32)))(jnp.zeros((1, 2)))
        assert np.isfinite(slope).all()


def test_bags_of_a_batch_of_unknown_size_have_weights_in_graphs() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        embedding = tf.nn.Embedding(4, 2, initializer=tf.initializers.ones())
        ids = tf.placeholder(tf.int32, (None, 3))
        weights = tf.placeholder(tf.float32, (None, 3))
        total = embedding(ids, weights, "sum")
        session.run(tf.global_variables_initializer())
        feeds = {ids: [[0, 1, -1]], weights: [[1, 2, 4]]}
        np.testing.assert_array_equal(session.run(total, feeds), [[3, 3]])


def test_each_shard_makes_its_own_first_values(strategy: Any) -> None:
    made: list[Any] = []

    class Numbered(tf.initializers.zeros):  # type: ignore[misc,name-defined]
        def _make(self, shape: Any, dtype: Any, part: Any) -> Any:
            made.append(shape)
            first = part.var_offset[0] * shape[1]
            return first + jnp.arange(shape[0] * shape[1], dtype=dtype).reshape(shape)

    with strategy.scope():
        embedding = tf.nn.Embedding(N_ROWS, FEATURES, "numbered", initializer=Numbered())
        is_sharded = isinstance(embedding.table, tf.distribute.ShardedVariable)
        parts = [*embedding.table] if is_sharded else []
        wanted = np.arange(N_ROWS * FEATURES).reshape(N_ROWS, FEATURES)
        np.testing.assert_array_equal(embedding.table.numpy(), wanted)
    assert {part.device for part in parts} <= {f"/job:ps/task:{i}/device:CPU:0" for i in (0, 1)}
    assert {tuple(part.shape) for part in parts} <= {*made}


def counted(strategy: Any) -> tuple[Any, Any, Callable[..., Any]]:
    """A table of zeros, a count of steps, and a step that adds one to the rows of some ids."""
    zeros = tf.initializers.zeros()
    with strategy.scope():
        embedding = tf.nn.Embedding(1000, 4, "counted", initializer=zeros)
        count = tf.Variable(0.0, name="count")
        optimizer = tf.train.Optimizer(optax.sgd(1.0))
        optimizer.build([embedding.table])

    @tf.function
    def step(ids: Any) -> Any:
        optimizer.minimize(lambda: -jnp.sum(embedding(ids)), var_list=[embedding.table])
        return count.assign_add(1.0)

    return embedding, count, step


def test_a_table_is_saved_by_part_while_training_goes_on(
    cluster: ClusterSpec, tmp_path: Path
) -> None:
    strategy = ParameterServerStrategy(cluster, variable_partitioner=FixedShards(2))
    with tf.ClusterCoordinator(strategy) as coordinator:
        embedding, count, step = counted(strategy)
        rng, ended = np.random.default_rng(0), Event()

        def train() -> None:
            while not ended.is_set():
                coordinator.schedule(step, args=(rng.integers(0, 1000, 16),)).fetch()

        thread = Thread(target=train)
        thread.start()
        state = {"table": embedding, "count": count}
        with strategy.scope():
            for number in range(3):
                wait_until(lambda n=number: float(count.numpy()) > 5 * n + 3, "some steps")  # type: ignore[misc]
                tf.checkpoint.save(tmp_path / f"{number}", state, consistent=True)
        ended.set()
        thread.join(PATIENCE_S)
        assert len([*tmp_path.glob("*.safetensors")]) == 3 * 2, "a file of each task"
        with strategy.scope():
            counts = []
            for number in range(3):
                tf.checkpoint.restore(tmp_path / f"{number}", state)
                counts.append(float(count.numpy()))
                assert embedding.table.numpy().sum() == 16 * 4 * counts[-1]
        assert counts == sorted(counts)
        assert counts[0] < counts[-1]
    strategy.close()


@pytest.mark.long
def test_a_parameter_server_that_is_killed_while_training_loses_its_own_rows_only(
    tmp_path: Path,
) -> None:
    """The other one has each update once; no row of either has a part of an update."""
    with ProcessCluster(ps=2, workers=2) as processes:
        strategy = ParameterServerStrategy(
            processes.cluster_spec, variable_partitioner=FixedShards(2)
        )
        with tf.ClusterCoordinator(
            strategy, on_ps_failure="restore", checkpoint=tmp_path / "table"
        ) as coordinator:
            embedding, _, step = counted(strategy)
            rng, expected = np.random.default_rng(0), np.zeros(1000)
            for _ in range(4):
                coordinator.save()
                batches = rng.integers(0, 1000, (200, 16))
                np.add.at(expected, batches, 1)
                steps = [
                    coordinator.schedule(step, args=(ids,), effects="exactly_once")
                    for ids in batches
                ]
                wait_until(steps[50].done, "a part of the steps")
                processes.kill("ps", 1)
                processes.restart("ps", 1)
                coordinator.join(PATIENCE_S)
            assert coordinator.n_restored == 4
            with strategy.scope():
                found = embedding.table.numpy()
            assert (found == found[:, :1]).all()
            np.testing.assert_array_equal(found[:500, 0], expected[:500])
            assert (found[500:, 0] <= expected[500:]).all()
            assert found[500:].sum() > 0
        strategy.close()
