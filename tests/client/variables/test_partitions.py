"""Partitioned variables: how they are cut, read, written, looked up, reused and placed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jflow as tf
from jflow.base.values import SaveSliceInfo, assigned_parts
from jflow.launch.testing.backends import BackendUnderTest as Backend
from tests.drawn import examples

TABLE = np.arange(30, dtype=np.float32).reshape(10, 3)


def test_ten_rows_in_three_parts_are_four_three_three(backend: Backend) -> None:
    n_devices = len(backend.devices)
    counter = iter(range(100))

    def round_robin(op: tf.Operation) -> str | None:
        return backend.devices[next(counter) % n_devices] if op.type == "variable" else None

    with tf.device(round_robin), tf.variable_scope("s"):
        pv = tf.get_variable("pv", initializer=TABLE, partitioner=tf.fixed_size_partitioner(3))
    assert [part.name for part in pv] == [f"s/pv/part_{i}:0" for i in range(3)]
    assert [part.shape for part in pv] == [(4, 3), (3, 3), (3, 3)]
    assert (pv.name, pv.shape, pv.dtype, len(pv)) == ("s/pv", (10, 3), np.float32, 3)
    assert [part.save_slice_info for part in pv] == [
        SaveSliceInfo("s/pv", (10, 3), (start, 0), (size, 3))
        for start, size in ((0, 4), (4, 3), (7, 3))
    ]
    assert [part.device for part in pv] == _spelled(backend.devices, 3)
    assert tf.global_variables() == tf.trainable_variables() == [*pv]
    total, doubled = tf.numpy.sum(pv), pv * 2
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(pv), TABLE)
        np.testing.assert_array_equal(session.run(doubled), TABLE * 2)
        assert session.run(total) == TABLE.sum()
        session.run(pv.assign(TABLE[::-1].copy()))
        np.testing.assert_array_equal(session.run(pv), TABLE[::-1])
        session.run(pv.assign_add(tf.constant(TABLE)))
        np.testing.assert_array_equal(session.run(list(pv)[2]), TABLE[::-1][7:] + TABLE[7:])
        session.run(pv.assign_sub(pv))
        assert not session.run(pv).any()


def _spelled(devices: list[str], n: int) -> list[str]:
    """The devices of parts, in turn, as variables spell them."""
    found = []
    for i in range(n):
        with tf.Graph().as_default(), tf.device(devices[i % len(devices)]):
            found.append(tf.constant(0).device)
    return found


def _parts(strategy: str, devices: list[str]) -> list[tf.Variable]:
    """A table in three parts, in turn on devices."""
    rows = {"mod": [TABLE[i::3] for i in range(3)], "div": [TABLE[:4], TABLE[4:7], TABLE[7:]]}
    parts = []
    for i, values in enumerate(rows[strategy]):
        with tf.device(devices[i % len(devices)]):
            parts.append(tf.Variable(values, name=f"{strategy}{i}"))
    return parts


IDS = np.array([[0, 9, 4], [4, 3, 7]], np.int32)


def test_rows_are_looked_up_in_parts(backend: Backend) -> None:
    ids = tf.placeholder(tf.int32, (2, 3))
    found = [
        tf.nn.embedding_lookup(_parts(strategy, backend.devices), ids, strategy)
        for strategy in ("mod", "div")
    ]
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        for rows in session.run(found, {ids: IDS}):
            np.testing.assert_array_equal(rows, TABLE[IDS])


def test_a_lookup_in_parts_has_gradients_limits_of_norms_and_nan_out_of_range() -> None:
    parts = _parts("mod", ["/cpu:0"])
    rows = tf.nn.embedding_lookup(parts, IDS, max_norm=1.0)
    squares = tf.numpy.sum(tf.nn.embedding_lookup(parts, IDS) ** 2)
    outside = tf.nn.embedding_lookup(parts, [10, 0, -1, 11])
    some = tf.placeholder(tf.int32, (None,))
    by_part = tf.nn.embedding_lookup(parts, some)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        *slopes, short, missing = session.run([*tf.gradients(squares, parts), rows, outside])
        np.testing.assert_array_equal(session.run(by_part, {some: [10, 0, -1, 11]}), missing)
    expected = jax.grad(lambda table: jnp.sum(table[IDS] ** 2))(TABLE)
    for i, slope in enumerate(slopes):
        np.testing.assert_allclose(slope, expected[i::3], rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(short, axis=-1), 1.0, rtol=1e-5)
    assert np.isnan(missing).all(axis=1).tolist() == [True, False, True, True]


def test_a_part_gathers_the_rows_of_its_own_ids_only(backend: Backend) -> None:
    parts = _parts("mod", backend.devices)
    ids = tf.placeholder(tf.int32, (None,))
    loss = tf.numpy.sum(tf.nn.embedding_lookup(parts, ids) ** 2)
    optimizer = tf.train.GradientDescentOptimizer(0.5)
    pairs = optimizer.compute_gradients(loss, parts)
    train = optimizer.apply_gradients(pairs)
    gathered = [
        op.outputs[0] for op in tf.get_default_graph().get_operations() if "/gather" in op.name
    ]
    many = np.arange(100, dtype=np.int32) % 9 // 3 * 3  # rows of the first part: 0, 3 and 6
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        taken, slopes = session.run([gathered, [pair[0].values for pair in pairs]], {ids: many})
        assert [len(rows) for rows in taken] == [len(rows) for rows in slopes] == [112, 8, 8]
        session.run(train, {ids: many})
        new = session.run(parts)
    counts = np.bincount(many, minlength=10)[:, np.newaxis]
    for i, rows in enumerate(new):
        np.testing.assert_allclose(rows, (TABLE - counts * TABLE)[i::3], rtol=1e-6)


@pytest.mark.parametrize(("n_parts", "strategy"), [(3, "mod"), (4, "div")])
def test_a_lookup_in_parts_is_that_in_the_whole_with_its_gradient(
    n_parts: int, strategy: str
) -> None:
    table = np.random.default_rng(0).normal(size=(29, 2, 3)).astype(np.float32)
    whole = tf.get_variable("whole", initializer=table)
    if strategy == "div":
        cut = tf.fixed_size_partitioner(n_parts)
        parts: Any = tf.get_variable("parts", initializer=table, partitioner=cut)
    else:
        parts = [tf.Variable(table[i::n_parts]) for i in range(n_parts)]
    ids = tf.placeholder(tf.int32, (None, 2))
    found = [tf.nn.embedding_lookup(one, ids, strategy) for one in (whole, parts)]
    losses = [tf.numpy.sum(rows**2) for rows in found]
    slope, slopes = tf.gradients(losses[0], whole), tf.gradients(losses[1], [*parts])

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())

        @settings(max_examples=15)
        # A program is compiled for each n, and the draws are about the ids.
        @given(n=st.sampled_from([1, 4, 15]), seed=st.integers(0, 2**32 - 1))
        def agree(n: int, seed: int) -> None:
            rng = np.random.default_rng(seed)
            feed = {ids: rng.choice(rng.integers(0, 29, 5), (n, 2))}
            (one, other), expected, each = session.run([found, slope[0], slopes], feed)
            np.testing.assert_array_equal(one, other)
            if strategy == "div":
                got = np.concatenate(each)
            else:
                got = np.stack([each[i % n_parts][i // n_parts] for i in range(29)])
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)

        agree()


def test_many_rows_of_known_number_are_looked_up_by_part_and_few_in_each() -> None:
    parts = _parts("mod", ["/cpu:0"])
    for n, is_divided in ((100, False), (40_000, True)):
        with tf.name_scope(f"n{n}"):
            rows = tf.nn.embedding_lookup(parts, np.arange(n, dtype=np.int32) % 10)
        assert (rows.op.type == "stitch_rows") is is_divided
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            np.testing.assert_array_equal(session.run(rows), TABLE[np.arange(n) % 10])


def test_one_table_is_looked_up_as_it_is() -> None:
    w = tf.get_variable("w", initializer=TABLE)
    one = tf.get_variable("one", initializer=TABLE, partitioner=tf.fixed_size_partitioner(1))
    found = [
        tf.nn.embedding_lookup(table, [3, 1]) for table in (w, one, TABLE, [tf.constant(TABLE)])
    ]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for rows in session.run(found):
            np.testing.assert_array_equal(rows, TABLE[[3, 1]])
    with pytest.raises(ValueError, match="partition strategy mod or div"):
        tf.nn.embedding_lookup(w, [0], "hash")
    with pytest.raises(TypeError, match="ids must be integers"):
        tf.nn.embedding_lookup(w, [0.5])
    with pytest.raises(ValueError, match="at least one part"):
        tf.nn.embedding_lookup([], [0])


@settings(max_examples=examples(10))
@given(
    n_rows=st.integers(1, 12),
    n_parts=st.integers(1, 15),
    strategy=st.sampled_from(["mod", "div"]),
    data=st.data(),
)
def test_ids_find_their_rows_for_any_number_of_parts(
    n_rows: int, n_parts: int, strategy: str, data: st.DataObject
) -> None:
    n_parts = min(n_rows, n_parts)
    sizes = [n_rows // n_parts + (i < n_rows % n_parts) for i in range(n_parts)]
    ids = data.draw(st.lists(st.integers(-3, n_rows + 3), min_size=1, max_size=5))
    part, row = map(np.asarray, assigned_parts(np.array(ids, np.int32), sizes, strategy, np))
    for i, p, r in zip(ids, part, row, strict=True):
        if not 0 <= i < n_rows:
            assert p == n_parts
        elif strategy == "mod":
            assert (p, r) == (i % n_parts, i // n_parts)
        else:
            assert sum(sizes[:p]) + r == i
            assert r < sizes[p]


def test_partitioners_say_how_many_parts() -> None:
    fixed = tf.fixed_size_partitioner(4, axis=1)
    assert list(fixed(shape=(8, 3), dtype=tf.float32)) == [1, 3]  # at most one for each index
    by_size = tf.variable_axis_size_partitioner(64)
    assert list(by_size(shape=(8, 4), dtype=tf.float32)) == [2, 1]
    assert list(by_size(shape=(8, 4), dtype=tf.float16)) == [1, 1]
    assert list(by_size(shape=(8, 400), dtype=tf.float32)) == [8, 1]
    limited = tf.variable_axis_size_partitioner(64, max_shards=2, axis=-1)
    assert list(limited(shape=(1000, 8), dtype=tf.float32)) == [1, 2]
    min_max = tf.min_max_variable_partitioner(max_partitions=5, min_slice_size=64)
    assert list(min_max(shape=(8, 4), dtype=tf.float32)) == [2, 1]
    assert list(min_max(shape=(100, 4), dtype=tf.float32)) == [5, 1]
    assert list(min_max(shape=(2, 2), dtype=tf.float32)) == [1, 1]
    for make in (
        lambda: tf.fixed_size_partitioner(0),
        lambda: tf.variable_axis_size_partitioner(0),
        lambda: tf.min_max_variable_partitioner(max_partitions=-1),
    ):
        with pytest.raises(ValueError, match="must be positive"):
            make()
    with pytest.raises(ValueError, match="along axis 2 when shape is only"):
        tf.fixed_size_partitioner(2, axis=2)(shape=(4, 4), dtype=tf.float32)


@pytest.mark.parametrize(
    ("partitioner", "shape", "message"),
    [
        (3, [4], "Partitioner must be callable"),
        (lambda shape, dtype: 2, [4], "Partitioner must return a sequence"),
        (lambda shape, dtype: [1, 2], [4], "does not match the Variable's rank"),
        (lambda shape, dtype: [0], [4], "zero partitions"),
        (lambda shape, dtype: [2, 2], [4, 4], "along one dimension"),
        (tf.fixed_size_partitioner(2), None, "must be fully defined"),
        (tf.fixed_size_partitioner(2), [None, 2], "must be fully defined"),
    ],
)
def test_a_malformed_partition_is_refused(partitioner: Any, shape: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tf.get_variable("pv", shape, partitioner=partitioner)


def test_a_scalar_is_not_partitioned_and_more_parts_than_rows_are_clipped() -> None:
    zeros = tf.zeros_initializer()
    with tf.variable_scope("s", partitioner=tf.fixed_size_partitioner(5), initializer=zeros):
        assert isinstance(tf.get_variable("scalar", []), tf.Variable)
        clipped = tf.get_variable("rows", [3, 2])
    in_two = tf.fixed_size_partitioner(2, axis=1)
    columns = tf.get_variable("columns", [2, 5], initializer=zeros, partitioner=in_two)
    assert [part.shape for part in clipped] == [(1, 2)] * 3
    assert [part.shape for part in columns] == [(2, 3), (2, 2)]
    assert (
        repr(columns) == "<jflow.PartitionedVariable 'columns' shape=(2, 5) dtype=float32 parts=2>"
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        value = np.arange(10, dtype=np.float32).reshape(2, 5)
        session.run(columns.assign(value))
        np.testing.assert_array_equal(session.run(columns), value)
    with pytest.raises(ValueError, match=r"shape \(5, 2\) to partitioned variable 'columns'"):
        columns.assign(value.T)


def test_parts_are_reused_as_a_whole() -> None:
    parts = tf.fixed_size_partitioner(2)
    pv = tf.get_variable("pv", [4, 2], partitioner=parts)
    with pytest.raises(
        ValueError, match=r"pv already exists\. .*Originally defined at: .*\.py:\d+"
    ):
        tf.get_variable("pv", [4, 2], partitioner=parts)
    with pytest.raises(ValueError, match="No partitioner was provided, but a partitioned version"):
        tf.get_variable("pv", [4, 2])
    single = tf.get_variable("single", [4])
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        assert tf.get_variable("pv", [4, 2], partitioner=parts) is pv
        assert tf.get_variable("pv") is pv
        for shape, dtype, cut, message in (
            ([5, 2], None, parts, "specified shape"),
            ([4, 2], tf.int32, parts, "specified dtype"),
            ([4, 2], None, tf.fixed_size_partitioner(3), r"specified partitions \[3, 1\]"),
        ):
            with pytest.raises(ValueError, match=f"Trying to reuse .* pv, but {message}"):
                tf.get_variable("pv", shape, dtype, partitioner=cut)
        with pytest.raises(ValueError, match="PartitionedVariable other does not exist"):
            tf.get_variable("other", [4], partitioner=parts)
        with pytest.raises(ValueError, match="an unpartitioned version of the variable was found"):
            tf.get_variable("single", [4], partitioner=parts)
    assert single.save_slice_info is None


def test_parts_have_initial_values_of_the_whole() -> None:
    parts = tf.fixed_size_partitioner(3)
    drawn = tf.get_variable("drawn", [90, 10], partitioner=parts)
    eye = tf.get_variable("eye", [5, 5], partitioner=parts, initializer=tf.initializers.identity())
    fixed = tf.constant_initializer(TABLE)
    rows = tf.get_variable("rows", [10, 3], partitioner=parts, initializer=fixed)
    given = tf.get_variable("given", partitioner=parts, initializer=tf.constant(TABLE))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        limit = np.sqrt(6 / 100)  # by the connections of the whole
        assert 0.9 * limit < np.abs(session.run(drawn)).max() <= limit
        np.testing.assert_array_equal(session.run(eye), np.eye(5))
        np.testing.assert_array_equal(session.run(rows), TABLE)
        np.testing.assert_array_equal(session.run(given), TABLE)


def test_a_partitioned_variable_is_fetched_from_a_finalized_graph() -> None:
    pv = tf.get_variable("pv", initializer=TABLE, partitioner=tf.fixed_size_partitioner(3))
    init = tf.global_variables_initializer()
    tf.get_default_graph().finalize()
    with tf.Session() as session:
        session.run(init)
        np.testing.assert_array_equal(session.run({"pv": pv})["pv"], TABLE)
        np.testing.assert_array_equal(pv.eval(), TABLE)


def test_parts_train_as_the_whole_does() -> None:
    whole = tf.get_variable("whole", initializer=TABLE)
    pv = tf.get_variable("pv", initializer=TABLE, partitioner=tf.fixed_size_partitioner(3))
    loss = tf.numpy.mean(whole**2) + tf.numpy.mean(tf.numpy.square(pv))
    optimizer = tf.train.AdamOptimizer(0.1)
    train = optimizer.minimize(loss)
    slots = [optimizer.get_slot(part, "m") for part in pv]
    assert [slot.save_slice_info.full_name for slot in slots] == ["pv/Adam"] * 3
    assert [slot.save_slice_info.var_offset for slot in slots] == [(0, 0), (4, 0), (7, 0)]
    assert optimizer.get_slot(whole, "m").save_slice_info is None
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        session.run(train)
        np.testing.assert_allclose(session.run(pv), session.run(whole), rtol=1e-6)
