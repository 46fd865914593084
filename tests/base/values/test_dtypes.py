import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.base.values import NUMBERS, as_array, as_dtype
from tests.samples import KEYS, NARROW, allowing, assert_same, keys, numbers


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.0, np.float32),
        (1, np.int32),
        (True, np.bool_),
        (1j, np.complex64),
        ([1, 2.5], np.float32),
        ([[1, 2], [3, 4]], np.int32),
        (np.float64(1), np.float32),
        (np.arange(3, dtype=np.int64), np.int32),
        (np.arange(3, dtype=np.uint8), np.uint8),
        (np.float16(1), np.float16),
        (jnp.ones(2, jnp.bfloat16), jnp.bfloat16),
    ],
    ids=str,
)
def test_a_value_gets_the_dtype_that_jax_would_give_it(value, dtype):
    array = as_array(value)
    assert array.dtype == dtype
    assert array.dtype == jnp.asarray(value).dtype
    np.testing.assert_array_equal(array, np.asarray(value))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, np.float32),
        (True, np.float32),
        (True, np.int8),
        (1, np.int8),
        (255, np.uint8),
        (-128, np.int8),
        (1.5, np.float16),
        (1.5, jnp.bfloat16),
        (1.5, np.complex64),
        (np.float64(0.1), np.float32),
        (np.arange(3, dtype=np.uint32), np.int32),
        (jnp.ones(2, jnp.bfloat16), np.float32),
        (jnp.ones(2, jnp.float8_e4m3fn), np.float16),
        ([], np.int32),
        ([[], []], np.bool_),
    ],
    ids=str,
)
def test_a_cast_that_loses_at_most_precision_is_made(value, dtype):
    array = as_array(value, dtype)
    assert array.dtype == dtype
    np.testing.assert_array_equal(array.astype(np.complex128), np.asarray(value).astype(dtype))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.5, np.int32),
        (1.0, np.int32),
        (1j, np.float32),
        (300, np.int8),
        (-1, np.uint8),
        (2**31, np.int32),
        (np.uint32(2**32 - 1), np.int32),
        (1, np.bool_),
        (0.0, np.bool_),
        ("1", np.float32),
        (b"1", np.int8),
        (None, np.float32),
        ({}, np.float32),
        (..., np.float32),
        (np.datetime64("2026-01-01"), np.float32),
        (jnp.ones(2, jnp.bfloat16), np.int32),
    ],
    ids=str,
)
def test_a_cast_that_loses_more_than_precision_is_a_type_error(value, dtype):
    with pytest.raises(TypeError, match=r"is not compatible with|expected numbers or booleans"):
        as_array(value, dtype)


@pytest.mark.parametrize(
    "value",
    [
        *(None, [None], ..., [1, "a"], ["a", 1], [["a"], ["b", "c"]], [1, 2**70], {}),
        *(np.zeros(2, "V4"), np.zeros(2, "f4,i4"), np.longdouble(1), np.timedelta64(1, "s")),
        *(np.array([1, 2], object), np.array([b"a", 1], object), np.zeros(2, jnp.int1)),
    ],
    ids=str,
)
def test_what_is_no_array_of_numbers_or_strings_is_a_type_error(value):
    with pytest.raises((TypeError, ValueError), match=r"expected|inhomogeneous"):
        as_array(value)


@pytest.mark.parametrize(
    ("value", "items", "shape"),
    [
        ("é", ["é".encode()], ()),
        (b"\xff\0", [b"\xff\0"], ()),
        (["a", b"\xff"], [b"a", b"\xff"], (2,)),
        ((("a",), ("",)), [b"a", b""], (2, 1)),
        (np.array(["a", "bc"]), [b"a", b"bc"], (2,)),
        (np.array([b"a", b"bc"]), [b"a", b"bc"], (2,)),
        (np.array([["a", "b"], ["c", "d"]], object).T, [b"a", b"c", b"b", b"d"], (2, 2)),
        (np.array([], object), [], (0,)),
        (np.str_("a"), [b"a"], ()),
    ],
    ids=str,
)
def test_text_and_bytes_become_arrays_of_bytes(value, items, shape):
    for array in (as_array(value), as_array(value, tf.string)):
        assert (array.dtype, array.shape) == (object, shape)
        assert array.reshape(-1).tolist() == items
        assert all(type(item) is bytes for item in array.flat)


def test_an_array_of_strings_is_a_copy():
    given = np.array([b"a", "b"], object)
    as_array(given)[0] = b"changed"
    assert given.tolist() == [b"a", "b"]


@pytest.mark.parametrize("name", sorted({*NUMBERS} & {*np.sctypeDict}))
def test_an_array_in_the_other_byte_order_is_turned_round(name):
    with allowing(name):
        own = numbers(name, (2, 3))
        swapped = own.astype(own.dtype.newbyteorder("S"))
        for array in (as_array(swapped), as_array(swapped, swapped.dtype)):
            assert array.dtype.isnative
            assert_same(array, own)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("wanted", NARROW)
def test_ones_fit_every_dtype_of_the_same_kind_or_a_wider_one(name, wanted):
    ones, order = np.ones(3, NUMBERS[name]), (np.bool_, np.integer, np.floating, np.complexfloating)
    kind, wider = (
        next(i for i, kind in enumerate(order) if jnp.issubdtype(NUMBERS[dtype], kind))
        for dtype in (name, wanted)
    )
    if kind <= wider:
        assert_same(as_array(ones, wanted), np.ones(3, NUMBERS[wanted]))
    else:
        with pytest.raises(TypeError, match="is not compatible with"):
            as_array(ones, wanted)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1e300, None),
        (-1e300, np.float32),
        ([1.0, 1e39], np.float32),
        (1e300 + 1j, np.complex64),
        (70_000, np.float16),
        (1e6, jnp.float8_e5m2),
        (1e6, jnp.float8_e4m3fn),
        (np.inf, jnp.float8_e4m3fn),
        (8, jnp.int4),
        (-9, jnp.int4),
        (2, jnp.int2),
        (16, jnp.uint4),
        (np.array([200], np.uint8), jnp.int4),
        (np.array([7], jnp.int4), jnp.int2),
    ],
    ids=str,
)
def test_a_number_out_of_a_dtype_s_range_is_named_in_the_error(value, dtype):
    with pytest.raises(TypeError, match=r"is not compatible with .*: .* is out of its range"):
        as_array(value, dtype)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, [1.0, np.inf], complex(np.nan, 1)])
def test_infinities_and_no_numbers_stay_what_they_are(value):
    dtype = np.complex64 if isinstance(value, complex) else np.float16
    np.testing.assert_array_equal(as_array(value, dtype), np.asarray(value))


@pytest.mark.parametrize(
    ("value", "dtype"), [(1.5, jnp.int4), (1.0, jnp.uint2), (np.zeros(1, jnp.float8_e4m3), np.int8)]
)
def test_fractions_do_not_become_small_integers(value, dtype):
    with pytest.raises(TypeError, match="is not compatible with"):
        as_array(value, dtype)


def test_what_is_narrowed_and_does_not_fit_tells_how_to_get_64_bits():
    with pytest.raises(
        TypeError, match=r"int64 is not compatible with int32 .*jax_enable_x64.*True"
    ):
        as_array(2**40)
    with jax.enable_x64(True):
        assert as_array(2**40).dtype == np.int64
        assert as_array(1e300).dtype == np.float64
        with pytest.raises(TypeError, match=r"int64 is not compatible with int32: 1099511627776"):
            as_array(2**40, np.int32)


@pytest.mark.parametrize("impl", KEYS)
def test_random_keys_stay_as_they_are(impl):
    given = keys(impl, (2,))
    assert as_array(given) is given
    assert as_array(given, given.dtype) is given
    assert as_dtype(given.dtype) == given.dtype


def test_random_keys_are_no_numbers_and_numbers_are_no_random_keys():
    key, other = keys("threefry2x32", ()), keys("rbg", ())
    with pytest.raises(TypeError, match=r"key<fry> are not compatible with uint32.*key_data"):
        as_array(key, np.uint32)
    with pytest.raises(TypeError, match=r"key<rbg> are not compatible with key<fry>"):
        as_array(other, key.dtype)
    for value in (np.zeros(2, np.uint32), 1, "text"):
        with pytest.raises(TypeError, match=r"expected random keys of dtype key<fry>.*random.key"):
            as_array(value, key.dtype)
    with pytest.raises(TypeError, match="expected text or bytes"):
        as_array([1], tf.string)


@pytest.mark.parametrize("value", [2**40, -(2**31) - 1, np.array([2**33]), [1, 2**31]], ids=str)
def test_an_integer_that_does_not_fit_is_an_error_not_another_number(value):
    with pytest.raises((TypeError, OverflowError)):
        as_array(value)


def test_lists_of_uneven_length_are_an_error():
    with pytest.raises((TypeError, ValueError)):
        as_array([[1, 2], [3]])


@pytest.mark.parametrize("dtype", ["int64", np.float64, np.uint64, complex])
def test_a_64_bit_dtype_is_an_error_that_says_how_to_switch_it_on(dtype):
    with pytest.raises(ValueError, match="jax_enable_x64"):
        as_dtype(dtype)
    with pytest.raises(ValueError, match="jax_enable_x64"):
        as_array(1, dtype)


@pytest.mark.parametrize(
    "dtype",
    [
        *("float33", "x", object(), object, "V4", "f4,i4", "M8[s]", np.longdouble),
        *(jnp.int1, jnp.uint1, jnp.float6_e2m3fn, jax.dtypes.prng_key),
    ],
)
def test_a_dtype_that_does_not_exist_is_a_type_error(dtype):
    with pytest.raises(TypeError):
        as_dtype(dtype)


@pytest.mark.parametrize("dtype", [tf.string, "string", str, bytes, np.dtype("S3"), np.str_])
def test_text_and_bytes_mean_strings(dtype):
    assert as_dtype(dtype) is tf.string


@pytest.mark.parametrize("name", NARROW)
def test_every_dtype_of_jax_that_a_device_takes_is_a_dtype_of_tensors(name):
    assert as_dtype(getattr(jnp, name if name != "bool" else "bool_")) == NUMBERS[name]


@pytest.mark.parametrize("dtype", ["bfloat16", jnp.float32, np.dtype("int8"), bool, "f4"])
def test_anything_that_names_a_dtype_is_taken(dtype):
    assert as_dtype(dtype) == np.dtype(dtype)
