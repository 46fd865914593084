"""What is carried by another type outside of programs, and that it comes through unchanged."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jflow.base.values import NUMBERS, physical
from tests.samples import KEYS, NARROW, assert_same, keys, numbers

SMALL = {"int2", "int4", "uint2", "uint4", "float4_e2m1fn"}


@pytest.mark.parametrize("name", NARROW)
def test_only_what_takes_less_than_a_byte_is_carried_by_another_dtype(name):
    value = numbers(name, (2, 16))
    carried = physical.to_physical(value)
    assert (carried is value) == (name not in SMALL)
    assert carried.dtype.itemsize == value.dtype.itemsize
    assert_same(physical.from_physical(carried, value.dtype), value)
    assert_same(physical.from_physical(carried[0, 0], value.dtype), value[0, 0])


@pytest.mark.parametrize("name", sorted(SMALL))
def test_programs_take_carriers_apart_and_make_them_again(name):
    value = jax.ShapeDtypeStruct((3,), NUMBERS[name])
    wrap, unwrap = physical.wrapping(value), physical.unwrapping(value)
    assert wrap.in_avals == unwrap.out_avals
    assert wrap.out_avals == unwrap.in_avals
    assert wrap.out_avals[0].dtype == value.dtype


@pytest.mark.parametrize("impl", KEYS)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)], ids=str)
def test_random_keys_are_carried_by_their_numbers(impl, shape):
    value = keys(impl, shape)
    carried = physical.to_physical(value)
    assert carried.dtype == np.uint32
    assert carried.shape[:-1] == shape
    logical_element = physical.from_physical(carried, value.dtype)
    assert_same(logical_element, value)
    assert jax.random.key_impl(logical_element) == impl
    assert physical.wrapping(value).in_avals == [jax.core.ShapedArray(carried.shape, np.uint32)]


def test_numbers_need_no_program_around_them():
    value = jax.ShapeDtypeStruct((3,), np.float32)
    assert physical.wrapping(value) is None
    assert physical.unwrapping(value) is None


@pytest.mark.parametrize("dtype", [np.dtype("f4"), "f4", float, None, object(), jax.numpy.float32])
def test_nothing_else_is_a_dtype_of_random_keys(dtype):
    assert not physical.is_key(dtype)
