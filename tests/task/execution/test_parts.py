"""Host functions that divide ids and rows among the parts of a table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.errors import InvalidArgumentError
from jflow.task.execution.functions import host_function
from jflow.task.execution.parts import padded_size

split_ids, stitch_rows, split_rows = map(host_function, ("split_ids", "stitch_rows", "split_rows"))


@given(n=st.integers(0, 10**7))
def test_padding_is_at_most_a_quarter_or_few_rows_and_of_few_sizes(n: int) -> None:
    assert n <= padded_size(n) <= max(1.25 * n, n + 7, 8)
    sizes = {padded_size(i) for i in range(1000, 2001)}
    assert len(sizes) <= 6


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    data=st.data(),
)
def test_joining_is_the_inverse_and_the_transpose_of_dividing(
    sizes: list[int], data: st.DataObject
) -> None:
    ids = np.array(data.draw(st.lists(st.integers(-2, sum(sizes) + 1))), np.int32)[:, None]
    parts = split_ids(ids, sizes=sizes, strategy="div")
    local, places = parts[: len(sizes)], parts[len(sizes) :]
    table = np.arange(sum(sizes))
    starts = np.cumsum([0, *sizes])
    rows = [
        np.append(table[start : start + size], -1)[np.minimum(at, size)]
        for start, size, at in zip(starts, sizes, local, strict=False)
    ]
    expected = np.where((ids >= 0) & (ids < sum(sizes)), ids, -1)
    (stitched,) = stitch_rows(ids, *places, *rows)
    np.testing.assert_array_equal(stitched, expected)
    divided = split_rows(ids, expected, *places)
    other = [np.where(at >= 0, row, 0) for at, row in zip(places, rows, strict=True)]
    for one, two in zip(divided, other, strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_position_beyond_the_ids_is_an_error() -> None:
    ids, places, rows = np.zeros(2, np.int32), np.array([0, 2], np.int32), np.zeros((2, 3))
    with pytest.raises(InvalidArgumentError, match="position 2 is beyond the 2 ids"):
        stitch_rows(ids, places, rows)
    with pytest.raises(InvalidArgumentError, match="position 2 is beyond the 2 ids"):
        split_rows(ids, rows, places)
