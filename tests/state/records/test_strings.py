import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.base.values import as_strings
from jflow.errors import InvalidArgumentError
from jflow.state.records import DECODERS
from tests.state.records.arrays import strings


def _one(name, *arrays, **attributes):
    (result,) = DECODERS[name](*arrays, **attributes)
    return result.tolist()


# All expected values are TensorFlow 2.21's.
@pytest.mark.parametrize(
    ("items", "attributes", "rows"),
    [
        (["hello  world", "a b c", ""], {}, [["hello", "world"], ["a", "b", "c"], []]),
        (["a  b", ""], {"skip_empty": False}, [["a", "", "b"], []]),
        (["a,b;c"], {"delimiter": ",;"}, [["a", "b", "c"]]),
        (["abc", ""], {"delimiter": ""}, [["a", "b", "c"], []]),
        (["a\tb\nc"], {}, [["a\tb\nc"]]),
        ([], {}, []),
        (["  "], {}, [[]]),
    ],
)
def test_strings_are_split_into_a_sparse_matrix(items, attributes, rows):
    indices, values, shape = DECODERS["string_split"](strings(*items), **attributes)
    assert indices.tolist() == [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    assert values.tolist() == [part.encode() for row in rows for part in row]
    assert shape.tolist() == [len(rows), max(map(len, rows), default=0)]
    assert (indices.shape, indices.dtype, shape.dtype) == ((len(values), 2), np.int64, np.int64)


def test_only_vectors_are_split():
    with pytest.raises(InvalidArgumentError, match=r"string\[n\], got strings of shape \(\)"):
        DECODERS["string_split"](as_strings("abc"))


@pytest.mark.parametrize(
    ("text", "dtype", "number"),
    [
        ("1", "float32", 1.0),
        (" 1.5 ", "float64", 1.5),
        ("1e400", "float32", math.inf),
        ("-7", "int32", -7),
        ("9223372036854775807", "int64", 2**63 - 1),
    ],
)
def test_text_becomes_numbers(text, dtype, number):
    (array,) = DECODERS["string_to_number"](strings(text).reshape(1, 1), out_type=dtype)
    assert (array.dtype, array.tolist()) == (dtype, [[number]])


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("x", "float32"),
        ("", "float32"),
        ("1.5", "int32"),
        ("3000000000", "int32"),
        ("inf", "int32"),
    ],
)
def test_text_that_is_no_number_is_refused(text, dtype):
    with pytest.raises(InvalidArgumentError, match=f"element 1 is not a valid {dtype}: b'{text}'"):
        DECODERS["string_to_number"](strings("1", text), out_type=dtype)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5))
def test_integers_come_back_from_their_text(numbers):
    (texts,) = DECODERS["as_string"](np.array(numbers, np.int32))
    assert _one("string_to_number", texts, out_type="int32") == numbers


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=5))
def test_floats_come_back_from_text_with_nine_digits(numbers):
    (texts,) = DECODERS["as_string"](np.array(numbers, np.float32), scientific=True, precision=8)
    assert _one("string_to_number", texts) == numbers


def test_strings_are_joined():
    ab, cd = strings("a", "b"), strings("c", "d")
    assert _one("string_join", ab, cd, separator="-") == [b"a-c", b"b-d"]
    assert _one("string_join", as_strings("x"), cd) == [b"xc", b"xd"]
    assert _one("string_join", as_strings("x"), as_strings("y")) == b"xy"
    with pytest.raises(InvalidArgumentError, match=r"\[\(2,\), \(1,\)\]"):
        DECODERS["string_join"](ab, strings("c"))


def test_strings_are_stripped():
    assert _one("string_strip", strings(" a b\t\r\n", "")) == [b"a b", b""]


@pytest.mark.parametrize(
    ("items", "pos", "length", "unit", "expected"),
    [
        (["hello", "hi"], 1, 3, "BYTE", ["ell", "i"]),
        (["hello", "hi"], [1, -2], [2, 1], "BYTE", ["el", "h"]),
        (["hi"], 2, 1, "BYTE", [""]),
        (["hi"], 0, -1, "BYTE", ["hi"]),
        (["héllo"], 1, 3, "UTF8_CHAR", ["éll"]),
        (["héllo"], -4, 1, "UTF8_CHAR", ["é"]),
    ],
)
def test_parts_of_strings(items, pos, length, unit, expected):
    got = _one("substr", strings(*items), np.array(pos), np.array(length), unit=unit)
    assert got == [x.encode() for x in expected]


def test_a_scalar_is_cut_at_several_positions():
    got = _one("substr", as_strings("hello"), np.array([1, 2]), np.array([3, 3]))
    assert got == [b"ell", b"llo"]


@pytest.mark.parametrize(
    ("pos", "length", "unit", "message"),
    [
        (3, 1, "BYTE", "pos 3 out of range for string b'hi' at index 1"),
        (-3, 1, "UTF8_CHAR", "pos -3 out of range for string b'hi' at index 1"),
        ([1, 1], 1, "BYTE", "same shape"),
        ([1, 1, 1], [1, 1, 1], "BYTE", "does not broadcast"),
        (1, 1, "WORD", "unit"),
    ],
)
def test_positions_that_are_not_there_are_refused(pos, length, unit, message):
    with pytest.raises(InvalidArgumentError, match=message):
        _one("substr", strings("hello", "hi"), np.array(pos), np.array(length), unit=unit)


@pytest.mark.parametrize(
    ("value", "attributes", "expected"),
    [
        (np.float32([1.5, 2.25e10, np.nan, np.inf]), {}, "1.500000 22499999744.000000 nan inf"),
        (np.int32([1, -2]), {}, "1 -2"),
        (np.array([True, False]), {}, "true false"),
        (np.float32([1.5]), {"precision": 2}, "1.50"),
        (np.float32([1.5]), {"scientific": True}, "1.500000e+00"),
        (np.float32([1.5]), {"shortest": True}, "1.5"),
        (np.int32([3]), {"width": 4, "fill": "0"}, "0003"),
        (np.int32([1]), {"width": 3, "fill": "+"}, " +1"),
        (np.float32([1.5]), {"width": 10, "fill": "-"}, "1.500000  "),
        (np.float32([1.5]), {"width": 10}, "  1.500000"),
        (np.complex64([1 + 2j]), {}, "(1.000000,2.000000)"),
        (np.float64([1e-7, 1e22]), {"shortest": True}, "1e-07 1e+22"),
    ],
)
def test_values_become_text(value, attributes, expected):
    got = _one("as_string", value, **attributes)
    assert b" ".join(got) == expected.encode()


@pytest.mark.parametrize(
    ("value", "attributes"),
    [
        (np.int32([1]), {"precision": 2}),
        (np.float32([1]), {"scientific": True, "shortest": True}),
        (np.int32([1]), {"fill": "x", "width": 3}),
    ],
)
def test_formats_that_make_no_sense_are_refused(value, attributes):
    with pytest.raises(InvalidArgumentError):
        DECODERS["as_string"](value, **attributes)


def test_raw_bytes_are_numbers():
    raw = DECODERS["decode_raw"]
    (array,) = raw(strings("abcd", "efgh"), out_type="int16")
    assert (array.dtype, array.tolist()) == (np.int16, [[25185, 25699], [26213, 26727]])
    assert raw(strings("\0\1"), out_type="int16", little_endian=False)[0].tolist() == [[1]]
    assert raw(as_strings("\2"), out_type="bool")[0].tolist() == [True]
    assert raw(strings("", ""), out_type="int16")[0].shape == (2, 0)
    assert raw(strings(), out_type="int16")[0].shape == (0, 0)
    with pytest.raises(InvalidArgumentError, match="element 1 has 4 bytes and the first one 2"):
        raw(strings("ab", "abcd"), out_type="int16")
    with pytest.raises(InvalidArgumentError, match="length 3, which is not a multiple of 2"):
        raw(strings("abc"), out_type="int16")
    with pytest.raises(InvalidArgumentError, match="numbers"):
        raw(strings("abc"), out_type="object")


@given(st.sampled_from(["<", ">"]), st.lists(st.floats(allow_nan=False), max_size=6))
def test_raw_bytes_come_back_from_arrays(order, numbers):
    data = np.array(numbers, order + "f8").tobytes()
    item = np.empty((), object)
    item[()] = data
    got = _one("decode_raw", item, out_type="float64", little_endian=order == "<")
    assert got == numbers
