import json
from contextlib import suppress
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.errors import InvalidArgumentError
from jflow.state.records import (
    DECODERS,
    FixedLenFeature,
    FixedLenSequenceFeature,
    VarLenFeature,
    as_columns,
    encode_example,
)
from jflow.state.records.example import MalformedError
from tests.state.records.arrays import strings

# Written by TensorFlow 2.21: f is [1.5, -2.0], i is [-1, 0, 300], s is ["ab", ""]; n has no list.
BY_TENSORFLOW = bytes.fromhex(
    "0a410a110a0166120c120a0a080000c03f000000c00a160a016912111a0f0a0dffffffffffffffffff0100ac020a050a016e12000a0d0a017312080a060a0261620a00"
)


def _parse(examples, features, name="parse_example"):
    """The results by key; those of a sparse feature are (indices, values, shape)."""
    defaults, columns = as_columns(features)
    batch = strings(*examples) if name == "parse_example" else strings(*examples).reshape(())
    arrays = iter(DECODERS[name](batch, *defaults, columns=json.loads(json.dumps(columns))))
    found = {
        key: tuple(next(arrays) for _ in range(3 if kind == "sparse" else 1))
        for key, kind, _, _ in columns
    }
    return {key: value[0] if len(value) == 1 else value for key, value in found.items()}


def _lists(sparse, batch=1):
    """The values of each Example in a sparse result."""
    indices, values, shape = sparse
    rows = [[] for _ in range(batch)]
    for (i, j), value in zip(indices.tolist(), values.tolist(), strict=True):
        assert j == len(rows[i])
        rows[i].append(value)
    assert shape.tolist() == [batch, max(map(len, rows), default=0)]
    return rows


def test_an_example_of_tensorflow_is_read():
    features = {
        "f": FixedLenFeature([2], "float32"),
        "i": FixedLenFeature([3], "int64"),
        "s": FixedLenFeature([2], "string"),
        "n": VarLenFeature("int64"),
    }
    found = _parse([BY_TENSORFLOW], features)
    assert found["f"].tolist() == [[1.5, -2.0]]
    assert found["i"].tolist() == [[-1, 0, 300]]
    assert found["s"].tolist() == [[b"ab", b""]]
    assert _lists(found["n"]) == [[]]
    assert (found["f"].dtype, found["i"].dtype) == (np.float32, np.int64)


def test_what_is_written_is_what_tensorflow_writes():
    ours = encode_example({"i": [-1, 0, 300], "s": ["ab", b""], "f": np.float64([1.5, -2])})
    assert ours[2:] in BY_TENSORFLOW.replace(b"\x0a\x05\x0a\x01n\x12\x00", b"")


LISTS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5),
    st.lists(st.binary(max_size=200), min_size=1, max_size=5),
)
DTYPES = {int: "int64", float: "float32", bytes: "string"}


@given(st.dictionaries(st.text(max_size=8), LISTS, max_size=5))
def test_every_example_comes_back(values):
    features = {key: VarLenFeature(DTYPES[type(items[0])]) for key, items in values.items()}
    found = _parse([encode_example(values)], features)
    assert {key: _lists(sparse)[0] for key, sparse in found.items()} == values


@given(st.lists(st.lists(st.integers(-300, 300), max_size=4), max_size=6))
def test_lists_of_any_length_are_sparse_or_padded(rows):
    examples = [encode_example({"x": np.array(row, np.int64)}) for row in rows]
    assert _lists(_parse(examples, {"x": VarLenFeature("int32")})["x"], len(rows)) == rows
    padded = _parse(examples, {"x": FixedLenSequenceFeature([], "int64", default_value=-9)})["x"]
    longest = max(map(len, rows), default=0)
    assert padded.shape == (len(rows), longest)
    assert padded.tolist() == [row + [-9] * (longest - len(row)) for row in rows]


def test_text_and_bytes_may_be_mixed_and_ragged_lists_are_refused_by_key():
    for items in (["a", b"\xff\0"], [b"\xff", "\N{SNOWMAN}"]):
        found = _parse([encode_example({"x": items})], {"x": VarLenFeature("string")})["x"]
        assert _lists(found)[0] == [x.encode() if isinstance(x, str) else x for x in items]
    for ragged in ([[1], [2, 3]], [["a"], ["b", "c"]], [1, "a", b"\xff"]):
        with pytest.raises(InvalidArgumentError, match="feature 'x': expected text or bytes"):
            encode_example({"x": ragged})


def test_an_empty_list_is_one_of_any_dtype():
    examples = [encode_example({"x": items}) for items in ([], [], ["a"])]
    assert _lists(_parse(examples, {"x": VarLenFeature("string")})["x"], 3) == [[], [], [b"a"]]
    for dtype in ("int64", "float32", "string"):
        assert _lists(_parse(examples[:2], {"x": VarLenFeature(dtype)})["x"], 2) == [[], []]
    assert _parse(examples[:1], {"x": FixedLenFeature([], "int64", 7)})["x"].tolist() == [7]


@pytest.mark.parametrize("dtype", ["int64", "float32", "string"])
def test_an_empty_array_is_a_list_of_its_dtype(dtype):
    data = encode_example({"x": np.array([], object if dtype == "string" else dtype)})
    with pytest.raises(InvalidArgumentError, match=r"expected 2 values.*got 0"):
        _parse([data], {"x": FixedLenFeature([2], dtype, "1" if dtype == "string" else 1)})
    other = "float32" if dtype == "int64" else "int64"
    with pytest.raises(InvalidArgumentError, match=f"expected {other} values, got {dtype}"):
        _parse([data], {"x": VarLenFeature(other)})


def test_sequences_of_arrays_are_padded_with_zeros():
    examples = [encode_example({"x": [1.0, 2, 3, 4]}), encode_example({"x": [5.0, 6]}), b""]
    found = _parse(examples, {"x": FixedLenSequenceFeature([2], "float32")})["x"]
    assert found.tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]], [[0, 0], [0, 0]]]
    texts = [encode_example({"x": ["a", "b"]}), b""]
    found = _parse(texts, {"x": FixedLenSequenceFeature([], "string")})["x"]
    assert found.tolist() == [[b"a", b"b"], [b"", b""]]


def test_missing_features_have_the_default_value():
    examples = [encode_example({"x": [1.0, 2.0]}), b"", BY_TENSORFLOW]
    found = _parse(examples, {"x": FixedLenFeature([2], "float32", [5, 6])})["x"]
    assert found.tolist() == [[1, 2], [5, 6], [5, 6]]
    found = _parse(examples, {"x": FixedLenFeature([2], "float32", 7)})["x"]
    assert found.tolist() == [[1, 2], [7, 7], [7, 7]]
    found = _parse(examples, {"n": FixedLenFeature([], "string", "none")})["n"]
    assert found.tolist() == [b"none"] * 3


def test_shapes_are_those_asked_for():
    data = encode_example({"x": np.arange(6.0).reshape(2, 3), "y": 7, "z": "text"})
    features = {
        "x": FixedLenFeature((3, 2), np.float32),
        "y": FixedLenFeature([], np.int32),
        "z": FixedLenFeature([], str),
    }
    found = _parse([data] * 4, features)
    assert found["x"].tolist() == [[[0, 1], [2, 3], [4, 5]]] * 4
    assert (found["y"].tolist(), found["y"].dtype) == ([7] * 4, np.int32)
    assert found["z"].tolist() == [b"text"] * 4
    empty = _parse([], features | {"v": VarLenFeature("int64")})
    assert [empty[key].shape for key in "xyz"] == [(0, 3, 2), (0,), (0,)]
    assert [array.shape for array in empty["v"]] == [(0, 2), (0,), (2,)]


def test_a_single_example_has_no_batch_dimension():
    features = {
        "a": FixedLenFeature([2], "float32"),
        "b": VarLenFeature("string"),
        "c": FixedLenSequenceFeature([], "int64"),
    }
    data = encode_example({"a": [1.0, 2.0], "b": ["x", "y"], "c": [1, 2, 3]})
    found = _parse([data], features, "parse_single_example")
    assert found["a"].tolist() == [1, 2]
    assert [array.tolist() for array in found["b"]] == [[[0], [1]], [b"x", b"y"], [2]]
    assert found["c"].tolist() == [1, 2, 3]
    with pytest.raises(InvalidArgumentError, match=r"string\[\]"):
        DECODERS["parse_single_example"](strings(data), columns=[])
    with pytest.raises(InvalidArgumentError, match=r"string\[batch\]"):
        DECODERS["parse_example"](strings(data).reshape(()), columns=[])


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (FixedLenFeature([3], "float32"), r"expected 3 values of shape \(3,\), got 2"),
        (FixedLenFeature([2], "int64"), "expected int64 values, got float32"),
        (VarLenFeature("string"), "expected string values, got float32"),
        (FixedLenSequenceFeature([3], "float32"), r"a multiple of 3 values.*\(3,\), got 2"),
    ],
)
def test_features_that_are_not_as_declared_are_refused_by_key_and_index(feature, message):
    examples = [b"", b"", encode_example({"a": [1.0, 2.0]})]
    if isinstance(feature, FixedLenFeature):
        feature = FixedLenFeature(feature.shape, feature.dtype, 0)
    with pytest.raises(InvalidArgumentError, match=rf"Key: a\. .*Example 2: .*{message}"):
        _parse(examples, {"a": feature})


def test_a_required_feature_that_is_not_there_is_refused():
    examples = [encode_example({"a": 1}), encode_example({"b": 1})]
    with pytest.raises(InvalidArgumentError, match=r"Key: a\. .*Example 1: .*required"):
        _parse(examples, {"a": FixedLenFeature([], "int64")})


def test_integers_that_do_not_fit_are_refused():
    examples = [encode_example({"a": [1, 2]}), encode_example({"a": [3, 1 << 31]})]
    with pytest.raises(InvalidArgumentError, match=r"Key: a\. .*Example 1: 2147483648 .* int32"):
        _parse(examples, {"a": VarLenFeature("int32")})
    for value in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(InvalidArgumentError, match="feature 'a'"):
            encode_example({"a": value})


def _field(tag, data):
    return bytes([tag, len(data)]) + data


def _example_of(feature):
    return _field(0x0A, _field(0x0A, _field(0x0A, b"a") + _field(0x12, feature)))


@pytest.mark.parametrize(
    ("feature", "dtype", "values"),
    [
        # Not packed: a tag for each value.
        (_field(0x12, b"\x0d\0\0\x80\x3f\x0d\0\0\0\x40"), "float32", [1.0, 2.0]),
        (_field(0x1A, b"\x08\x01\x08\xac\x02"), "int64", [1, 300]),
        # Both in one list, and a list in two pieces.
        (_field(0x1A, b"\x08\x01\x0a\x02\x02\x03\x08\x04"), "int64", [1, 2, 3, 4]),
        (_field(0x1A, b"\x08\x01") + _field(0x1A, b"\x08\x02"), "int64", [1, 2]),
        # The last kind counts.
        (_field(0x0A, b"\x0a\x01x") + _field(0x1A, b"\x08\x05"), "int64", [5]),
        # Unknown fields: a varint, eight, four and no bytes.
        (
            b"\x78\x96\x01" + _field(0x1A, b"\x71" + b"\0" * 8 + b"\x08\x05\x75abcd\x7a\0"),
            "int64",
            [5],
        ),
        # Integers of more bytes than they need.
        (_field(0x1A, b"\x0a\x03\x81\x80\x00"), "int64", [1]),
    ],
)
def test_other_ways_of_saying_the_same_are_read(feature, dtype, values):
    assert _lists(_parse([_example_of(feature)], {"a": VarLenFeature(dtype)})["a"]) == [values]


def test_of_entries_with_one_key_the_last_one_counts():
    entries = encode_example({"a": 1})[2:] + encode_example({"a": 2})[2:]
    assert _parse([_field(0x0A, entries)], {"a": FixedLenFeature([], "int64")})["a"] == [2]


FEATURES = {
    "f": VarLenFeature("float32"),
    "i": VarLenFeature("int64"),
    "s": VarLenFeature("string"),
}


@pytest.mark.parametrize("data", [b"garbage", b"\x0a", b"\x0a\x05", b"\x0b", b"\xff" * 12])
def test_bytes_that_are_no_example_are_refused(data):
    with pytest.raises(InvalidArgumentError, match="Can't parse serialized Example 1"):
        _parse([BY_TENSORFLOW, data], FEATURES)


@pytest.mark.parametrize(
    "feature",
    [
        _field(0x12, b"\x0a\x03abc"),
        _field(0x12, b"\x0a\x09abc"),
        _field(0x1A, b"\x0a\x01\x80"),
        _field(0x1A, b"\x0a\x0b" + b"\x80" * 10 + b"\x01"),
        _field(0x0A, b"\x0a\x09abc"),
    ],
)
def test_damaged_lists_are_refused_by_key(feature):
    dtype = {0x12: "float32", 0x1A: "int64", 0x0A: "string"}[feature[0]]
    with pytest.raises(InvalidArgumentError, match=r"Key: a\..*damaged"):
        _parse([_example_of(feature)], {"a": VarLenFeature(dtype)})
    with pytest.raises(InvalidArgumentError, match=r"Key: a\..*damaged"):
        _parse([_example_of(feature)], {"a": VarLenFeature(dtype)}, "parse_single_example")


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data):
    with suppress(InvalidArgumentError):
        assert len(_parse([data], FEATURES)) == 3


@given(st.integers(0, len(BY_TENSORFLOW) * 8 - 1))
def test_any_flipped_bit_is_read_or_refused(bit):
    data = bytearray(BY_TENSORFLOW)
    data[bit // 8] ^= 1 << bit % 8
    with suppress(InvalidArgumentError):
        assert len(_parse([bytes(data)], FEATURES)) == 3


@pytest.mark.parametrize(
    "feature",
    [
        FixedLenFeature([], "float16"),
        VarLenFeature("nonsense"),
        FixedLenFeature([2], "int64", [1, 2, 3]),
        FixedLenFeature([], "int64", "text"),
        FixedLenFeature([], "string", 5),
        FixedLenSequenceFeature([], "int64", default_value=[1, 2]),
    ],
)
def test_features_that_cannot_be_are_refused(feature):
    with pytest.raises(InvalidArgumentError, match="feature 'a'"):
        as_columns({"a": feature})


@pytest.mark.parametrize("value", [None, 1j, {"b": 1}, [b"a", 1], object()])
def test_values_that_no_list_holds_are_refused(value):
    with pytest.raises(InvalidArgumentError, match="feature 'a'"):
        encode_example({"a": value})


def _outcome(examples, features, name="parse_example"):
    """All results of parsing, or the message of its error."""
    try:
        found = _parse(examples, features, name)
    except InvalidArgumentError as error:
        return str(error)
    groups = [value if isinstance(value, tuple) else (value,) for value in found.values()]
    return [(x.dtype, x.shape, x.tolist()) for group in groups for x in group]


_ROWS = st.fixed_dictionaries(
    {},
    optional={
        "f": st.lists(st.sampled_from([0.5, -1.0, 3e8]), min_size=2, max_size=2),
        "i": st.lists(st.sampled_from([0, 1, 127, 128, -1, 1 << 31]), max_size=3).map(np.int64),
        "s": st.lists(st.sampled_from([b"", b"a", b"bc", b"\x0a\x01"]), min_size=1, max_size=2),
        "other": st.integers(0, 300),
    },
)


@st.composite
def _batches(draw):
    """Examples of few layouts with different values; some of them are damaged."""
    batch = []
    for row in draw(st.lists(_ROWS, min_size=1, max_size=3)):
        data = encode_example(row)
        for _ in range(draw(st.integers(1, 12))):
            batch.append(data)
            if data and draw(st.integers(0, 3)) == 0:
                damaged = bytearray(data)
                damaged[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
                batch[-1] = bytes(damaged)
            if draw(st.integers(0, 15)) == 0:
                batch[-1] = batch[-1][: draw(st.integers(0, len(data)))]
    return draw(st.permutations(batch))


_DECLARED = st.fixed_dictionaries(
    {},
    optional={
        "f": st.sampled_from(
            [
                FixedLenFeature([2], "float32"),
                FixedLenFeature([2], "float32", 7),
                FixedLenSequenceFeature([], "float32"),
                FixedLenSequenceFeature([2], "float32"),
                VarLenFeature("string"),
            ]
        ),
        "i": st.sampled_from(
            [
                FixedLenFeature([2], "int64", 7),
                FixedLenSequenceFeature([], "int32", default_value=-1),
                VarLenFeature("int32"),
                VarLenFeature("int64"),
            ]
        ),
        "s": st.sampled_from(
            [
                FixedLenFeature([1], "string", "none"),
                FixedLenSequenceFeature([], "string"),
                VarLenFeature("string"),
            ]
        ),
    },
)


@given(_batches(), _DECLARED)
def test_examples_together_are_what_they_are_one_by_one(batch, features):
    with mock.patch("jflow.state.records.lists.layout_of", return_value=None):
        expected = _outcome(batch, features)
    assert _outcome(batch, features) == expected


@given(_batches(), _DECLARED)
def test_an_example_by_itself_is_what_it_is_in_a_batch_of_one(batch, features):
    for data in batch:
        found = _outcome([data], features, "parse_single_example")
        with mock.patch("jflow.state.records.parse.find_lists", side_effect=MalformedError):
            assert found == _outcome([data], features, "parse_single_example")


def test_examples_of_one_layout_are_not_looked_at_one_by_one():
    batch = [encode_example({"x": [i, i + 0.5], "y": i}) for i in range(100)]
    features = {"x": FixedLenFeature([2], "float32"), "y": FixedLenFeature([], "int64")}
    with mock.patch("jflow.state.records.example.find_lists", side_effect=AssertionError):
        found = _parse(batch, features)
    assert found["x"].tolist() == [[i, i + 0.5] for i in range(100)]
    assert found["y"].tolist() == [*range(100)]
