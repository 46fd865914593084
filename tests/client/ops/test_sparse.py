"""Sparse tensors in feeds, fetches and batches; the strings that they are queued as."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.base.values import as_strings
from jflow.errors import InvalidArgumentError
from jflow.state.records import DECODERS
from tests.clusters import Backend

INDICES, VALUES, SHAPE = [[0, 1], [1, 0]], [1.0, 2.0], [2, 3]


def test_a_sparse_tensor_is_fed_and_fetched_as_one(backend: Backend):
    sparse = tf.sparse_placeholder(tf.float32, [None, 3], name="s")
    assert [part.name for part in sparse] == ["s/indices:0", "s/values:0", "s/shape:0"]
    with backend.session() as session:
        for value in (
            (INDICES, VALUES, SHAPE),
            tf.SparseTensorValue(np.array(INDICES), np.array(VALUES), np.array(SHAPE)),
        ):
            fetched = session.run({"s": sparse}, {sparse: value})["s"]
            assert isinstance(fetched, tf.SparseTensor)
            assert [part.tolist() for part in fetched] == [INDICES, VALUES, SHAPE]
        parts = {sparse.indices: INDICES, sparse.values: VALUES, sparse.dense_shape: SHAPE}
        assert session.run(sparse.values, parts).tolist() == VALUES
        run = session.make_callable(tf.sparse_tensor_to_dense(sparse), [sparse])
        assert run((INDICES, VALUES, SHAPE)).tolist() == [[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]]
        with pytest.raises(ValueError, match="expected 3 values"):
            session.run(sparse, {sparse: (INDICES, VALUES)})


def test_rows_of_a_tensor_are_fetched_and_fed_as_rows(backend: Backend):
    values, indices = tf.placeholder(tf.float32, [2, 2]), tf.placeholder(tf.int32, [2])
    slope = tf.IndexedSlices(2.0 * values, indices + 1, (4, 2))
    with backend.session() as session:
        rows = session.run([slope], {values: [[1.0, 2.0], [0.5, 3.0]], indices: [1, 2]})[0]
        assert isinstance(rows, tf.IndexedSlices)
        assert rows.is_array
        assert np.asarray(rows.indices).tolist() == [2, 3]
        assert np.asarray(rows.values).tolist() == [[2.0, 4.0], [1.0, 6.0]]
        assert rows.dense_shape == (4, 2)
        whole = tf.convert_to_tensor(slope)
        fed = tf.IndexedSlices(np.float32([[5.0, 6.0]] * 2), np.int32([1, 3]), (4, 2))
        dense = session.run(whole, {slope: fed})
        assert dense.tolist() == [[0, 0], [5, 6], [0, 0], [5, 6]]


def _examples():
    for number in range(3):
        words = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a", b"b"][:number]))
        ids = tf.train.Feature(int64_list=tf.train.Int64List(value=[number] * number))
        feature = {"words": words, "ids": ids} if number else {}
        features = tf.train.Features(feature=feature)
        yield tf.train.Example(features=features).SerializeToString()


@pytest.mark.parametrize("many", [False, True], ids=["one_by_one", "many"])
def test_sparse_examples_are_batched(backend: Backend, many):
    columns = {"words": tf.VarLenFeature(tf.string), "ids": tf.VarLenFeature(tf.int64)}
    (serialized,) = tf.train.slice_input_producer([[*_examples()]], shuffle=False)
    if many:
        serialized = tf.train.batch([serialized], batch_size=3)
        element = tf.parse_example(serialized, columns)
    else:
        element = tf.parse_single_example(serialized, columns)
    batch = tf.train.batch(element, batch_size=3, enqueue_many=many)
    table = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2), name="table")
    rows = tf.nn.embedding_lookup_sparse(table, batch["ids"], None, combiner="sum")
    with backend.session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        value, summed = session.run([batch, rows])
        coordinator.request_stop()
        coordinator.join(threads)
    assert isinstance(value["words"], tf.SparseTensor)
    assert value["words"].indices.tolist() == [[1, 0], [2, 0], [2, 1]]
    assert value["words"].values.tolist() == [b"a", b"a", b"b"]
    assert value["words"].dense_shape.tolist() == [3, 2]
    assert value["ids"].values.tolist() == [1, 2, 2]
    assert summed.tolist() == [[0.0, 0.0], [2.0, 3.0], [8.0, 10.0]]


@given(st.lists(st.lists(st.sampled_from([b"", b"a", b"long \xff"]), max_size=3), max_size=4))
def test_what_is_serialized_comes_back(rows):
    indices = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    values = as_strings([word for row in rows for word in row])
    shape = np.array([len(rows), 3], np.int64)
    given_indices = np.array(indices, np.int64).reshape(-1, 2)
    (strings,) = DECODERS["serialize_many_sparse"](given_indices, values, shape)
    assert strings.shape == (len(rows), 3)
    parts = DECODERS["deserialize_many_sparse"](strings, dtype="string", rank=1)
    assert parts[0].tolist() == given_indices.tolist()
    assert parts[1].tolist() == values.tolist()
    assert parts[2].tolist() == [len(rows), 3 if rows else 0]


LARGE = ([[0, 0]], [2**32 + 1], [1, 1])


def test_numbers_beyond_32_bits_fail_the_step():
    table, ids = tf.Variable(np.ones((4, 2), np.float32)), tf.sparse_placeholder(tf.int64, [1, 1])
    rows = tf.nn.embedding_lookup_sparse(table, ids, None)
    dense = tf.sparse_tensor_to_dense(ids)
    with tf.Session() as session:
        session.run(table.initializer)
        for fetch in (rows, dense):
            with pytest.raises(InvalidArgumentError, match=r"4294967297 is out of the range of"):
                session.run(fetch, {ids: LARGE})
            session.run(fetch, {ids: ([[0, 0]], [3], [1, 1])})
        least = -(2**31)
        assert session.run(dense, {ids: ([[0, 0]], [least], [1, 1])}).tolist() == [[least]]
        for beyond in ([[2**32, 0]], [[-(2**32), 0]]):
            with pytest.raises(InvalidArgumentError, match="is out of the range of int32"):
                session.run(dense, {ids: (beyond, [1], [1, 1])})


def test_numbers_keep_64_bits_where_programs_have_them():
    program = """
import jax
jax.config.update("jax_enable_x64", True)
import jflow as tf
ids = tf.sparse_placeholder(tf.int64, [None, None])
table = tf.Variable([[1.0], [2.0]])
rows = tf.nn.embedding_lookup_sparse(table, ids, None)
with tf.Session() as session:
    session.run(table.initializer)
    print(session.run(tf.sparse_tensor_to_dense(ids), {ids: ([[0, 0]], [2**40], [1, 1])}))
    print(session.run(rows, {ids: ([[0, 0]], [1], [1, 1])}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["[[1099511627776]]", "[[2.]]"]


def test_elements_that_are_out_of_range_are_left_out():
    vector = tf.sparse_to_dense([-1, 0, 3], [3], [5.0, 6.0, 7.0])
    matrix = tf.sparse_to_dense([[0, -1], [-2, 1], [1, 1], [2, 0]], [2, 2], [1, 2, 3, 4], -1)
    sparse = tf.sparse_placeholder(tf.float32, [None, None])
    dense = tf.sparse_tensor_to_dense(sparse, default_value=None)
    with tf.Session() as session:
        assert session.run(vector).tolist() == [6.0, 0.0, 0.0]
        assert session.run(matrix).tolist() == [[-1, -1], [-1, 3]]
        fed = {sparse: ([[-1, 0], [0, 1]], [1.0, 2.0], [2, 2])}
        assert session.run(dense, fed).tolist() == [[0.0, 2.0], [0.0, 0.0]]


def test_names_may_be_none():
    sparse = tf.sparse_placeholder(tf.float32, [None])
    assert tf.serialize_sparse(sparse, name=None).op.name == "SerializeSparse"
    many = tf.serialize_many_sparse(sparse, name=None)
    assert many.op.name == "SerializeManySparse"
    parts = tf.deserialize_many_sparse(many, tf.float32, name=None)
    assert parts.values.op.name == "DeserializeManySparse"
    rows = tf.nn.embedding_lookup(np.ones((2, 2), np.float32), [0], name=None)
    assert rows.op.name.startswith("embedding_lookup/")


def test_the_rows_without_values_that_are_serialized_have_a_limit():
    serialize = DECODERS["serialize_many_sparse"]
    indices, values = np.array([[0, 1], [2, 0]], np.int64), np.ones(2, np.float32)
    for n_rows in (10**13, 1_000_003, -1):
        with pytest.raises(InvalidArgumentError, match=f"cannot serialize {n_rows} rows with 2"):
            serialize(indices, values, np.array([n_rows, 3], np.int64))
    (strings,) = serialize(indices, values, np.array([4, 3], np.int64))
    parts = DECODERS["deserialize_many_sparse"](strings, dtype="float32")
    assert [part.tolist() for part in parts] == [[[0, 1], [2, 0]], [1.0, 1.0], [4, 3]]


@pytest.mark.parametrize("rank", [10**9, 256, -1])
def test_ranks_have_a_limit(rank):
    none = as_strings([]).reshape(0, 3)
    with pytest.raises(InvalidArgumentError, match=f"a rank from 0 to 255, got rank {rank}"):
        DECODERS["deserialize_many_sparse"](none, dtype="float32", rank=rank)
    if rank > 0:
        shape = np.ones(256, np.int64)
        with pytest.raises(InvalidArgumentError, match="got rank 256"):
            DECODERS["serialize_sparse"](np.zeros((1, 256), np.int64), np.ones(1), shape)


def test_numbers_keep_their_dtype():
    values, shape = np.array([1, 2], np.int64), np.array([4], np.int64)
    (one,) = DECODERS["serialize_sparse"](np.array([[0], [3]], np.int64), values, shape)
    parts = DECODERS["deserialize_many_sparse"](one[np.newaxis], dtype="int64")
    assert [part.tolist() for part in parts] == [[[0, 0], [0, 3]], [1, 2], [1, 4]]
    assert parts[1].dtype == np.int64


@pytest.mark.parametrize(
    ("strings", "message"),
    [
        ([[b"", b"", b""]], "malformed"),
        ([[b"a", b"b"]], r"expected string\[n, 3\]"),
    ],
)
def test_malformed_strings_are_refused(strings, message):
    array = as_strings([one for row in strings for one in row]).reshape(len(strings), -1)
    with pytest.raises(InvalidArgumentError, match=message):
        DECODERS["deserialize_many_sparse"](array, dtype="int64", rank=1)


def test_other_dtypes_and_ranks_are_refused():
    (one,) = DECODERS["serialize_sparse"](
        np.zeros((1, 1), np.int64), np.ones(1, np.float32), np.array([4], np.int64)
    )
    for options in ({"dtype": "int64", "rank": 1}, {"dtype": "float32", "rank": 2}):
        with pytest.raises(InvalidArgumentError, match="got float32 and rank 1 in row 0"):
            DECODERS["deserialize_many_sparse"](one[np.newaxis], **options)
    unsorted = np.array([[1, 0], [0, 0]], np.int64)
    with pytest.raises(InvalidArgumentError, match="sorted"):
        DECODERS["serialize_many_sparse"](unsorted, np.ones(2), np.array([2, 2], np.int64))


def test_arguments_of_lookups_are_checked():
    table = tf.Variable(np.ones((4, 2), np.float32))
    ids = tf.sparse_placeholder(tf.int64, [None, None])
    with pytest.raises(TypeError, match="expected a SparseTensor"):
        tf.nn.embedding_lookup_sparse(table, [1, 2], None)
    with pytest.raises(ValueError, match="combiner must be one of"):
        tf.nn.embedding_lookup_sparse(table, ids, None, combiner="max")
    rows = tf.nn.embedding_lookup_sparse(table, ids, None)
    with tf.Session() as session:
        session.run(table.initializer)
        none = (np.zeros((0, 2)), [], [2, 0])
        assert session.run(rows, {ids: none}).tolist() == [[0.0, 0.0], [0.0, 0.0]]
