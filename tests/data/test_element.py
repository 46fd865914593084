"""Batches of every sort of leaf."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jflow import errors
from jflow.data import Dataset


@given(st.lists(st.binary(max_size=3) | st.text(max_size=3), min_size=1, max_size=7))
def test_strings_keep_every_byte_through_a_batch(values) -> None:
    batches = list(Dataset.from_iterable(values).batch(3))
    assert all(batch.dtype == object for batch in batches)
    assert [value for batch in batches for value in batch] == values
    assert list(Dataset.from_iterable(values).batch(3).unbatch()) == values


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=3)), st.integers(1, 4))
def test_batches_of_rows_are_the_array_again(array, size) -> None:
    tree = {"x": array, "y": (array, np.arange(len(array)))}
    batches = list(Dataset.from_tensor_slices(tree).batch(size))
    np.testing.assert_array_equal(np.concatenate([b["x"] for b in batches]), array)
    np.testing.assert_array_equal(np.concatenate([b["y"][0] for b in batches]), array)
    assert batches[0]["x"].dtype == np.float32


@given(st.lists(st.lists(st.integers(-9, 9), max_size=4), min_size=1, max_size=6))
def test_a_padded_batch_has_each_row_and_the_padding_after_it(rows) -> None:
    arrays = [np.array(row, np.int16) for row in rows]
    dataset = Dataset.from_iterable(arrays).padded_batch(len(rows), padding_value=99)
    (batch,) = dataset
    assert batch.dtype == np.int16
    assert batch.shape == (len(rows), max(map(len, rows)))
    for row, padded in zip(rows, batch.tolist(), strict=True):
        assert padded == row + [99] * (batch.shape[1] - len(row))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [np.zeros(2), np.zeros(3)],
            r"element 0 of the batch is TensorSpec\(\(2,\), float64\), element 1 is .*\(\(3",
        ),
        ([np.zeros(2), np.zeros(2, int)], "one shape and kind"),
        ([np.zeros(2), "a"], "one shape and kind"),
        (["a", np.zeros(2)], "one shape and kind"),
        ([{"a": 1}, {"b": 1}], "one structure"),
    ],
)
def test_elements_that_do_not_fit_are_no_batch(values, message) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        list(Dataset.from_iterable(values).batch(2))
