"""Texts of numbers, default values of features, sparse features and sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.tensorflow_values.program import gives


@gives(
    numbers=[15, 15, -16, 8, 1.5, 31, 15, 15, 1e5, np.inf, 2.9514790517935283e20, np.inf],
    refused=[1, 1, 1, 1],
)
def a_float_may_be_hexadecimal(tf: Any) -> Mapping[str, Any]:
    texts = ["0xF", "0xf", "-0x10", "0x1p3", "0x1.8", "0X1F", "+0xF", " 0xF ", "1e5", "inf"]
    texts += ["0xFFFFFFFFFFFFFFFFF", "0x1p2000"]
    refused = []
    for text, dtype in (
        ("0x", tf.float32),
        ("0b1", tf.float32),
        ("0xF", tf.int32),
        ("0x_F", tf.float32),
    ):
        number = tf.string_to_number(tf.constant(text), out_type=dtype)
        try:
            with tf.Session() as session:
                session.run(number)
            refused.append(0)
        except tf.errors.InvalidArgumentError:
            refused.append(1)
    return {
        "numbers": tf.string_to_number(tf.constant(texts)),
        "refused": tf.constant(refused),
    }


@gives(flat=[[[[3], [-3]]]] * 2, transposed=[[[1, 2], [3, 4], [5, 6]]] * 2)
def a_default_value_of_a_feature_takes_its_shape(tf: Any) -> Mapping[str, Any]:
    features = {
        "flat": tf.FixedLenFeature((1, 2, 1), tf.float32, default_value=[3.0, -3.0]),
        "transposed": tf.FixedLenFeature((3, 2), tf.float32, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
    }
    parsed = tf.parse_example(tf.constant(["", ""]), features)
    return {name: parsed[name] for name in features}


def _feature(tf: Any, values: Any = ()) -> Any:
    """A feature of floats, integers or bytes; without values it has no list."""
    train, kinds = tf.train, {type(value) for value in values}
    if kinds == {float}:
        return train.Feature(float_list=train.FloatList(value=values))
    if kinds == {int}:
        return train.Feature(int64_list=train.Int64List(value=values))
    return train.Feature(bytes_list=train.BytesList(value=values)) if values else train.Feature()


def _example(tf: Any, **features: Any) -> bytes:
    by_key = {key: _feature(tf, values) for key, values in features.items()}
    data: bytes = tf.train.Example(features=tf.train.Features(feature=by_key)).SerializeToString()
    return data


def _sequence(tf: Any, context: Mapping[str, Any], **lists: Any) -> bytes:
    train = tf.train
    by_key = {key: _feature(tf, values) for key, values in context.items()}
    all_lists = {
        key: train.FeatureList(feature=[_feature(tf, values) for values in features])
        for key, features in lists.items()
    }
    data: bytes = train.SequenceExample(
        context=train.Features(feature=by_key),
        feature_lists=train.FeatureLists(feature_list=all_lists),
    ).SerializeToString()
    return data


def _parts(**sparse: Any) -> Mapping[str, Any]:
    """The components of sparse tensors by name."""
    names = ("indices", "values", "dense_shape")
    return {f"{key}_{name}": getattr(one, name) for key, one in sparse.items() for name in names}


def _is_refused(tf: Any, fetches: Any) -> Any:
    """Whether a step ends with an InvalidArgumentError, 0 or 1."""
    try:
        with tf.Session() as session:
            session.run(fetches)
    except tf.errors.InvalidArgumentError:
        return tf.constant(1)
    return tf.constant(0)


@gives(
    matrix_indices=[[0, 3, 1], [0, 20, 0], [2, 4, 2]],
    matrix_values=[-1, 0.5, 7],
    matrix_dense_shape=[3, 100, 3],
    vector_indices=[[0, 3], [0, 20], [2, 4]],
    vector_values=[-1, 0.5, 7],
    vector_dense_shape=[3, 100],
    unsorted_indices=[[0, 20], [0, 3], [2, 4]],
    unsorted_values=[0.5, -1, 7],
    unsorted_dense_shape=[3, 100],
    far_indices=[[0, 3], [0, 20], [2, 4]],
    far_values=[-1, 0.5, 7],
    far_dense_shape=[3, 2],
    own_indices=[[0, 0], [0, 1], [2, 0]],
    own_values=[20, 3, 4],
    own_dense_shape=[3, 2],
    large_indices=[[0, 3], [0, 20], [2, 4]],
    large_values=[-1, 0.5, 7],
    large_dense_shape=[3, 2**42],
)
def positions_and_values_in_features_of_their_own(tf: Any) -> Mapping[str, Any]:
    both = ["row", "column"]
    parsed = tf.parse_example(
        tf.constant(
            [
                _example(tf, v=[0.5, -1.0], row=[20, 3], column=[0, 1]),
                _example(tf),
                _example(tf, v=[7.0], row=[4], column=[2]),
            ]
        ),
        {
            "matrix": tf.SparseFeature(both, "v", tf.float32, [100, 3]),
            "vector": tf.SparseFeature("row", "v", tf.float32, 100),
            "unsorted": tf.SparseFeature("row", "v", tf.float32, 100, already_sorted=True),
            "far": tf.SparseFeature(["row"], "v", tf.float32, [2]),
            "row": tf.VarLenFeature(tf.int64),
            "large": tf.SparseFeature("row", "v", tf.float32, 2**42),
        },
    )
    return _parts(own=parsed.pop("row"), **parsed)


@gives(
    matrix_indices=[[3, 1], [20, 0]],
    matrix_values=[-1, 0.5],
    matrix_dense_shape=[100, 3],
    empty_indices=np.zeros((0, 1)),
    empty_values=[],
    empty_dense_shape=[100],
)
def positions_and_values_of_one_example(tf: Any) -> Mapping[str, Any]:
    data = _example(tf, v=[0.5, -1.0], row=[20, 3], column=[0, 1])
    matrix = {"x": tf.SparseFeature(["row", "column"], "v", tf.float32, [100, 3])}
    vector = {"x": tf.SparseFeature("row", "v", tf.float32, 100)}
    return _parts(
        matrix=tf.parse_single_example(tf.constant(data), matrix)["x"],
        empty=tf.parse_single_example(tf.constant(_example(tf)), vector)["x"],
    )


@gives(more=1, fewer=1, unequal=1, floats=1)
def positions_without_values_are_refused(tf: Any) -> Mapping[str, Any]:
    def refused(index_key: Any, **features: Any) -> Any:
        size = 10 if isinstance(index_key, str) else [10] * len(index_key)
        declared = {"x": tf.SparseFeature(index_key, "v", tf.float32, size)}
        parsed = tf.parse_example(tf.constant([_example(tf, **features)]), declared)
        return _is_refused(tf, parsed["x"].indices)

    return {
        "more": refused("a", v=[1.0], a=[1, 2]),
        "fewer": refused("a", v=[1.0, 2.0], a=[1]),
        "unequal": refused(["a", "b"], v=[1.0, 2.0], a=[1], b=[1, 2]),
        "floats": refused("a", v=[1.0], a=[1.0]),
    }


@gives(
    merged_indices=[[0, 2], [0, 5], [1, 1]],
    merged_values=[2, 1, 3],
    merged_dense_shape=[2, 10],
    cube_indices=[[0, 2, 5], [0, 5, 2], [1, 1, 1]],
    cube_values=[2, 1, 3],
    cube_dense_shape=[2, 10, 7],
)
def ids_become_positions(tf: Any) -> Mapping[str, Any]:
    at, shape = np.int64([[0, 0], [0, 1], [1, 0]]), np.int64([2, 2])
    ids = tf.SparseTensor(at, tf.constant([5, 2, 1]), shape)
    others = tf.SparseTensor(at, tf.constant([2, 5, 1]), shape)
    values = tf.SparseTensor(at, tf.constant([1.0, 2.0, 3.0]), shape)
    return _parts(
        merged=tf.sparse_merge(ids, values, 10),
        cube=tf.sparse_merge([ids, others], values, [tf.constant(10), 7]),
    )


@gives(
    a=[1, 2],
    m=9,
    f=[[1, 2], [3, 4]],
    e=[],
    missing=np.zeros((0, 3)),
    s_indices=[[0]],
    s_dense_shape=[1],
    v_indices=[[0, 0], [2, 0], [2, 1]],
    v_values=[5, 6, 7],
    v_dense_shape=[3, 2],
    none_indices=np.zeros((0, 2)),
    none_values=[],
    none_dense_shape=[0, 0],
)
def a_sequence_has_a_context_and_lists(tf: Any) -> Mapping[str, Any]:
    lists = {"f": [[1.0, 2.0], [3.0, 4.0]], "v": [[5], [], [6, 7]], "e": []}
    context, parsed = tf.parse_single_sequence_example(
        tf.constant(_sequence(tf, {"a": [1, 2], "s": [b"x"]}, **lists)),
        {
            "a": tf.FixedLenFeature([2], tf.int64),
            "s": tf.VarLenFeature(tf.string),
            "m": tf.FixedLenFeature([], tf.float32, 9.0),
        },
        {
            "f": tf.FixedLenSequenceFeature([2], tf.float32),
            "v": tf.VarLenFeature(tf.int64),
            "e": tf.FixedLenSequenceFeature([], tf.int64),
            "missing": tf.FixedLenSequenceFeature([3], tf.int64, allow_missing=True),
            "none": tf.VarLenFeature(tf.int64),
        },
    )
    s, v, none = context.pop("s"), parsed.pop("v"), parsed.pop("none")
    return {
        **context,
        **parsed,
        **_parts(v=v, none=none),
        "s_indices": s.indices,
        "s_dense_shape": s.dense_shape,
    }


_REFUSED_SEQUENCES = ("context", "list", "dtype", "sparse", "size", "empty", "bytes", "cut")


@gives(**dict.fromkeys(_REFUSED_SEQUENCES, 1))
def a_sequence_that_is_not_as_declared_is_refused(tf: Any) -> Mapping[str, Any]:
    data = _sequence(tf, {"a": [1]}, f=[[1.0, 2.0]], q=[[], [1]])
    dense, scalar = tf.FixedLenSequenceFeature([2], tf.float32), tf.FixedLenFeature([], tf.int64)
    number = tf.FixedLenSequenceFeature([], tf.int64)
    cases = (
        (data, {"missing": scalar}, None),
        (data, None, {"missing": dense}),
        (data, None, {"f": tf.FixedLenSequenceFeature([2], tf.int64)}),
        (data, None, {"f": tf.VarLenFeature(tf.int64)}),
        (data, None, {"f": tf.FixedLenSequenceFeature([3], tf.float32)}),
        (data, None, {"q": number}),
        (b"\xff\xff", {"a": scalar}, None),
        (data[:-1], None, {"q": tf.VarLenFeature(tf.int64)}),
    )
    refused = {}
    for name, (serialized, context, lists) in zip(_REFUSED_SEQUENCES, cases, strict=True):
        parsed = tf.parse_single_sequence_example(tf.constant(serialized), context, lists)
        refused[name] = _is_refused(tf, parsed)
    return refused


PROGRAMS = [
    a_float_may_be_hexadecimal,
    a_default_value_of_a_feature_takes_its_shape,
    positions_and_values_in_features_of_their_own,
    positions_and_values_of_one_example,
    positions_without_values_are_refused,
    ids_become_positions,
    a_sequence_has_a_context_and_lists,
    a_sequence_that_is_not_as_declared_is_refused,
]
