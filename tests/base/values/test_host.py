"""Strings in one piece: every bit comes back, and no bytes make anything but strings or errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.base.values import (
    HostArray,
    as_strings,
    is_string_tensor,
    raw_bytes,
    read_strings,
    type_name,
)

STRINGS = st.lists(st.binary(max_size=20), max_size=10)


@given(STRINGS, st.binary(max_size=20))
def test_strings_are_read_as_they_were_written_and_nothing_after_them(items, more):
    strings = np.empty(len(items), object)
    strings[:] = items
    raw = raw_bytes(strings)
    got, n_bytes = read_strings(np.concatenate([raw, np.frombuffer(more, np.uint8)]), len(items))
    assert got.tolist() == items
    assert n_bytes == len(raw) == 8 * len(items) + sum(map(len, items))


@given(st.binary(max_size=100), st.integers(0, 2**70))
def test_any_bytes_are_strings_or_a_value_error(data, count):
    raw = np.frombuffer(data, np.uint8)
    try:
        got, n_bytes = read_strings(raw, count)
    except ValueError:
        return
    assert len(got) == count
    assert raw_bytes(got).tobytes() == data[:n_bytes]


@pytest.mark.parametrize("lengths", [[2**64 - 1], [2**63, 2**63], [1, 2**40], [9]], ids=str)
def test_lengths_that_no_bytes_stand_behind_are_refused(lengths):
    raw = np.concatenate([np.array(lengths, "<u8").view(np.uint8), np.zeros(8, np.uint8)])
    with pytest.raises(ValueError, match=r"(do|does) not fit"):
        read_strings(raw, len(lengths))


def test_the_bytes_of_numbers_are_not_copied():
    numbers = np.arange(6.0).reshape(2, 3)
    assert np.shares_memory(raw_bytes(numbers), numbers)
    assert raw_bytes(numbers.T).tobytes() == numbers.T.tobytes()
    assert (type_name(numbers), is_string_tensor(numbers)) == ("float64", False)


def test_strings_have_an_abstract_value_of_their_own():
    tensor = tf.constant([["a"], ["b"]])
    assert tensor.aval == HostArray((2, 1))
    assert (tensor.shape, tensor.dtype, tensor.ndim) == ((2, 1), tf.string, 2)
    assert "dtype=string" in repr(tensor)
    assert "string[2,1]" in str(tensor.op.eqn)
    assert repr(tf.string) == "jflow.string"
    assert type_name(as_strings("a")) == "string"
