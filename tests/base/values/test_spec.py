"""Shapes and dtypes without values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jflow.base.values import TensorSpec, is_compatible, string, unknown_dim

KEY = jax.random.key(0).dtype


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ("float32", np.dtype(np.float32)),
        (np.int64, np.dtype(np.int64)),
        (jnp.bfloat16, np.dtype(jnp.bfloat16)),
        ("int4", np.dtype(jnp.int4)),
        ("string", string),
        (string, string),
        (np.dtype("S3"), string),
        (object, string),
        (KEY, KEY),
    ],
)
def test_a_dtype_may_be_given_by_its_name(given, dtype) -> None:
    assert TensorSpec((), given).dtype == dtype


@pytest.mark.parametrize("dtype", ["float31", "i4", "", "void"])
def test_what_names_no_dtype_is_refused(dtype) -> None:
    with pytest.raises(TypeError, match="is not a dtype of tensors; expected one of string, bool"):
        TensorSpec((), dtype)


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sizes of 0 or more, got \(2, -1\)"):
        TensorSpec((2, -1), "int8")


def test_it_says_shape_and_dtype() -> None:
    assert repr(TensorSpec([None, 3], "float32")) == "TensorSpec((None, 3), float32)"
    assert repr(TensorSpec(None, "string")) == "TensorSpec(None, string)"


def test_equal_specs_are_one_key() -> None:
    assert len({TensorSpec([2], "int8"), TensorSpec((2,), np.int8), TensorSpec((3,), "int8")}) == 2


@pytest.mark.parametrize(
    ("shape", "array", "fits"),
    [
        ((2, 3), np.zeros((2, 3), np.float32), True),
        ((None, 3), np.zeros((2, 3), np.float32), True),
        (None, np.zeros((2, 3), np.float32), True),
        ((), np.float32(1), True),
        ((2, 3), np.zeros((3, 2), np.float32), False),
        ((None,), np.zeros((2, 3), np.float32), False),
        ((2, 3), np.zeros((2, 3), np.float64), False),
        ((2,), np.array([b"a", b"b"], object), False),
    ],
)
def test_an_array_fits_by_dtype_and_shape(shape, array, fits) -> None:
    assert TensorSpec(shape, "float32").fits(array) == fits


def test_strings_fit_arrays_of_objects() -> None:
    spec = TensorSpec((None,), "string")
    assert spec.is_string
    assert spec.fits(np.array([b"a"], object))
    assert not spec.fits(np.zeros(1))


def test_a_batch_has_any_number_of_rows() -> None:
    assert TensorSpec((3,), "int8").batch == TensorSpec((None, 3), "int8")
    assert TensorSpec(None, "int8").batch == TensorSpec(None, "int8")
    assert TensorSpec((3,), "int8").is_static
    assert not TensorSpec((3,), "int8").batch.is_static
    assert not TensorSpec(None, "int8").is_static


def test_keys_and_small_types_have_a_physical_form() -> None:
    assert TensorSpec((None,), KEY).physical == TensorSpec((None, 2), "uint32")
    assert TensorSpec(None, "int4").physical == TensorSpec(None, "int8")
    plain = TensorSpec((None,), "float32")
    assert plain.physical is plain


def test_unknown_sizes_become_symbols() -> None:
    n = unknown_dim()
    aval = TensorSpec((None, 3), "float32").aval(n)
    assert (aval.shape[0], aval.shape[2], len(aval.shape)) == (n, 3, 3)
    assert not isinstance(aval.shape[1], int)
    assert TensorSpec(None, "float32").aval(n).shape is None


def test_a_size_that_is_not_known_may_be_any() -> None:
    assert is_compatible((None, 2), (unknown_dim(), 2))
    assert is_compatible((3, 2), (unknown_dim(), 2))
    assert is_compatible(None, (1,))
    assert is_compatible((1,), None)
    assert not is_compatible((3, 2), (unknown_dim(), 1))
    assert not is_compatible((3,), (3, 1))
