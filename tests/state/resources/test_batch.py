"""Batches out of rows."""

from __future__ import annotations

import numpy as np
import pytest

from jflow.base.values import TensorSpec
from jflow.state.resources.queue.column import row_of, stack


@pytest.mark.parametrize("shape", [(), (2,), (2, 1)])
def test_strings_of_any_rank_are_stacked(shape: tuple[int, ...]) -> None:
    rows = [np.full(shape, text, object) for text in (b"a", b"bc")]
    batch = stack(rows, TensorSpec(shape, "string"))
    assert batch.shape == (2, *shape)
    assert {type(item) for item in batch.flat} == {bytes}
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(row_of(batch, i), row)
