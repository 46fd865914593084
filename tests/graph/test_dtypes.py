import jax.numpy as jnp
import numpy as np
import pytest

from jflow.graph import as_array, as_dtype


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


@pytest.mark.parametrize("value", ["text", b"bytes", None, [None], ..., [1, "a"]], ids=str)
def test_what_is_no_array_of_numbers_is_a_type_error(value):
    with pytest.raises(TypeError, match="expected numbers or booleans"):
        as_array(value)


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


@pytest.mark.parametrize("dtype", ["float33", "x", object()])
def test_a_dtype_that_does_not_exist_is_a_type_error(dtype):
    with pytest.raises(TypeError):
        as_dtype(dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", jnp.float32, np.dtype("int8"), bool, "f4"])
def test_anything_that_names_a_dtype_is_taken(dtype):
    assert as_dtype(dtype) == np.dtype(dtype)
