"""Batches of SequenceExamples, and those that are damaged or in another form than usual."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.data import Dataset
from jflow.errors import InvalidArgumentError
from jflow.state.records import (
    DECODERS,
    FixedLenFeature,
    FixedLenSequenceFeature,
    VarLenFeature,
    as_columns,
)
from tests.state.records.arrays import strings

# Written by TensorFlow 2.21: a is [1, 2], s is ["x"], and along time e has nothing, f is
# [[1, 2], [3, 4]] and v is [[5], [], [6, 7]], of which the middle one has no kind.
BY_TENSORFLOW = bytes.fromhex(
    "0a190a0a0a017312050a030a01780a0b0a016112061a040a02010212420a050a016512000a210a0166121c0a0c120a"
    "0a080000803f000000400a0c120a0a0800004040000080400a160a017612110a051a030a01050a000a061a040a0206"
    "07"
)
# a is [3, 4]; f is [[9, 8]] and v is [[1, 2, 3]].
OTHER = bytes.fromhex(
    "0a0d0a0b0a016112061a040a02030412250a130a0166120e0a0c120a0a0800001041000000410a0e0a017612090a07"
    "1a050a03010203"
)

CONTEXT = {"a": FixedLenFeature([2], "int64"), "s": VarLenFeature("string")}
LISTS = {
    "f": FixedLenSequenceFeature([2], "float32"),
    "v": VarLenFeature("int64"),
    "e": FixedLenSequenceFeature([], "string", allow_missing=True),
}


def _parse(examples, context, lists, is_single=False):
    """All results in order."""
    defaults, columns = as_columns(context)
    name = "parse_single_sequence_example" if is_single else "parse_sequence_example"
    allowed = [key for key, one in lists.items() if getattr(one, "allow_missing", False)]
    batch = strings(*examples).reshape(()) if is_single else strings(*examples)
    options = {"context": columns, "sequence": as_columns(lists)[1], "allowed_missing": allowed}
    return [array.tolist() for array in DECODERS[name](batch, *defaults, **options)]


def test_a_batch_is_what_tensorflow_reads():
    """The values are those of tf.io.parse_sequence_example of TensorFlow 2.21."""
    a, *s = _parse([BY_TENSORFLOW, OTHER], CONTEXT, {})
    assert a == [[1, 2], [3, 4]]
    assert s == [[[0, 0]], [b"x"], [2, 1]]
    f, *v, e, f_lengths, e_lengths = _parse([BY_TENSORFLOW, OTHER], {}, LISTS)
    assert f == [[[1, 2], [3, 4]], [[9, 8], [0, 0]]]
    assert v[0] == [[0, 0, 0], [0, 2, 0], [0, 2, 1], [1, 0, 0], [1, 0, 1], [1, 0, 2]]
    assert v[1:] == [[5, 6, 7, 1, 2, 3], [2, 3, 3]]
    assert (e, f_lengths, e_lengths) == ([[], []], [2, 1], [0, 0])


def test_an_empty_batch_has_the_shapes_of_its_lists():
    assert _parse([], {}, LISTS) == [[], [], [], [0, 0, 0], [], [], []]


def test_lists_of_text_are_padded_with_empty_text():
    def words(*texts):
        features = [tf.train.Feature(bytes_list=tf.train.BytesList(value=[text])) for text in texts]
        lists = tf.train.FeatureLists(feature_list={"t": tf.train.FeatureList(feature=features)})
        return tf.train.SequenceExample(feature_lists=lists).SerializeToString()

    lists = {"t": FixedLenSequenceFeature([], "string")}
    assert _parse([words(b"a", b"b"), words(b"c")], {}, lists) == [
        [[b"a", b"b"], [b"c", b""]],
        [2, 1],
    ]


def test_the_graph_knows_the_shapes_and_gives_three_dictionaries():
    serialized = tf.constant([BY_TENSORFLOW, OTHER])
    context, lists, lengths = tf.parse_sequence_example(serialized, CONTEXT, LISTS)
    assert context["a"].shape.as_list() == [2, 2]
    assert lists["f"].shape.as_list() == [2, None, 2]
    assert lists["v"].indices.shape.as_list() == [None, 3]
    assert lists["v"].dense_shape.shape.as_list() == [3]
    assert {key: one.shape.as_list() for key, one in lengths.items()} == {"f": [2], "e": [2]}
    with tf.Session() as session:
        found = session.run((lists["f"], lengths["f"], lists["v"].dense_shape))
    assert [one.tolist() for one in found] == [
        [[[1, 2], [3, 4]], [[9, 8], [0, 0]]],
        [2, 1],
        [2, 3, 3],
    ]


def test_a_function_of_a_dataset_reads_sequences_and_sparse_features():
    declared = {"at": tf.SparseFeature("a", "a", tf.int64, 2**40)}

    def parsed(record):
        context, lists = tf.parse_single_sequence_example(record, CONTEXT, {"f": LISTS["f"]})
        sparse = tf.parse_single_example(record, declared)["at"]
        return {"a": context["a"], "f": lists["f"], "at": sparse.indices}

    first, second = list(Dataset.from_tensor_slices([BY_TENSORFLOW, OTHER]).map(parsed))
    assert (first["a"].tolist(), first["f"].tolist()) == ([1, 2], [[1, 2], [3, 4]])
    assert (second["f"].tolist(), second["at"].tolist()) == ([[9, 8]], [[3], [4]])


def _field(tag, data):
    return bytes([tag, len(data)]) + data


def _sequence_of(*features, key=b"v"):
    """A SequenceExample whose only feature list has these features."""
    feature_list = b"".join(_field(0x0A, feature) for feature in features)
    return _field(0x12, _field(0x0A, _field(0x0A, key) + _field(0x12, feature_list)))


def test_other_forms_of_the_same_are_read():
    not_packed = _field(0x1A, b"\x08\x01\x08\xac\x02")
    lists = {"v": VarLenFeature("int64")}
    assert _parse([_sequence_of(not_packed)], {}, lists)[1] == [1, 300]
    unknown = b"\x78\x01" + _field(0x1A, b"\x0a\x01\x07")
    assert _parse([_sequence_of(unknown)], {}, lists)[1] == [7]
    # Of lists with one key the last one counts.
    twice = _sequence_of(not_packed) + _sequence_of(_field(0x1A, b"\x0a\x01\x05"))
    assert _parse([twice], {}, lists)[1:] == [[5], [1, 1, 1]]


def test_features_without_values_make_rows_without_columns():
    empty = _field(0x1A, b"")
    lists = {"v": FixedLenSequenceFeature([0], "int64")}
    assert _parse([_sequence_of(empty, empty)], {}, lists) == [[[[], []]], [2]]


ROWS, TRIPLES = VarLenFeature("int64"), FixedLenSequenceFeature([3], "int64")


@pytest.mark.parametrize(
    ("data", "declared", "reason"),
    [
        (b"garbage", ROWS, "are not a tf.train"),
        (_sequence_of(b"\x1a\x09\x0a"), ROWS, r"Key: v\..*Example 1: its feature list is damaged"),
        (
            _sequence_of(_field(0x1A, b"\x0a\x01\x80")),
            ROWS,
            "SequenceExample 1, feature 0.*damaged",
        ),
        (
            _sequence_of(_field(0x1A, b"\x0a\x01\x01"), _field(0x12, b"\x0a\x04\0\0\0\0")),
            ROWS,
            "SequenceExample 1, feature 1: expected int64 values, got float32",
        ),
        (_sequence_of(_field(0x1A, b""), key=b"w"), TRIPLES, "Example 1: its feature list is requ"),
        (_sequence_of(b""), TRIPLES, "SequenceExample 1, feature 0: it is required"),
    ],
)
def test_what_is_refused_is_named(data, declared, reason):
    first = _sequence_of(_field(0x1A, b"\x0a\x03\1\2\3"))
    with pytest.raises(InvalidArgumentError, match=reason):
        _parse([first, data], {}, {"v": declared})


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data):
    with suppress(InvalidArgumentError):
        assert len(_parse([data], CONTEXT, LISTS)) == 4 + 5 + 2


@given(st.integers(0, len(BY_TENSORFLOW) * 8 - 1), st.booleans())
def test_any_flipped_bit_is_read_or_refused(bit, is_single):
    data = bytearray(BY_TENSORFLOW)
    data[bit // 8] ^= 1 << bit % 8
    with suppress(InvalidArgumentError):
        found = _parse([bytes(data)], CONTEXT, LISTS, is_single)
        assert len(found) == (4 + 5 if is_single else 4 + 5 + 2)


def test_declarations_that_no_sequence_has_are_refused():
    for features in ({}, {"context_features": {}}):
        with pytest.raises(ValueError, match="or both, got no feature"):
            tf.parse_single_sequence_example(b"", **features)
    wrong = tf.FixedLenSequenceFeature([], tf.int64)
    with pytest.raises(
        ValueError, match=r"'a': expected a VarLenFeature or a FixedLenFeature, got"
    ):
        tf.parse_single_sequence_example(b"", {"a": wrong})
    with pytest.raises(ValueError, match=r"'a': expected .*, got SparseFeature"):
        tf.parse_single_sequence_example(b"", {"a": tf.SparseFeature("a", "b", tf.int64, 3)})
    with pytest.raises(ValueError, match=r"or a FixedLenSequenceFeature, got FixedLenF"):
        tf.parse_single_sequence_example(b"", None, {"a": tf.FixedLenFeature([], tf.int64)})
    padded = tf.FixedLenSequenceFeature([], tf.int64, default_value=1)
    with pytest.raises(ValueError, match="'a': expected no default_value"):
        tf.parse_single_sequence_example(b"", None, {"a": padded})


def test_sparse_features_that_cannot_be_read_are_refused():
    for feature, error, reason in (
        (tf.SparseFeature("", "v", tf.int64, 3), ValueError, "'x': missing index_key"),
        (tf.SparseFeature("i", "", tf.int64, 3), ValueError, "'x': missing value_key"),
        (tf.SparseFeature("i", "v", tf.int64, [3]), TypeError, "expected one size for the ids"),
        (tf.SparseFeature(["i"], "v", tf.int64, 3), TypeError, "expected a list of sizes for a"),
        (tf.SparseFeature(["i", "j"], "v", tf.int64, [3]), ValueError, "got 1 and 2"),
    ):
        with pytest.raises(error, match=reason):
            tf.parse_example([b""], {"x": feature})


def test_positions_in_other_rows_than_their_values_are_refused_by_feature():
    examples = [
        tf.data.encode_example({"v": [1.0, 2.0], "i": np.int64([1])}),
        tf.data.encode_example({"v": [3.0], "i": np.int64([2, 3])}),
    ]
    sparse = tf.parse_example(examples, {"a b": tf.SparseFeature("i", "v", tf.float32, 9)})["a b"]
    with (
        tf.Session() as session,
        pytest.raises(InvalidArgumentError, match=r"values are elsewhere.*SparseMerge_a_b"),
    ):
        session.run(sparse)


def test_a_feature_without_values_has_no_elements():
    data = tf.data.encode_example({"x": np.zeros(0, np.int64)})
    parsed = tf.parse_example([data, data], {"x": tf.FixedLenFeature([0], tf.int64)})
    with tf.Session() as session:
        assert session.run(parsed["x"]).shape == (2, 0)
