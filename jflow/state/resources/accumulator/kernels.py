"""Kernels of accumulators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jflow.base.values import Array
from jflow.state.resources.accumulator.state import (
    ApplyGradient,
    ApplySparse,
    SetGlobalStep,
    TakeGradient,
)
from jflow.state.resources.attempt import Attempt
from jflow.state.resources.cell import Cell
from jflow.state.resources.kernel import Kernel, KernelRun, query, single_attempt, wait_for


def _apply(gradient: Array, local_step: Array) -> Attempt:
    return ApplyGradient(gradient, int(local_step))


def _apply_sparse(
    local_step: Array,
    indices: Array,
    values: Array,
    dense_shape: Array | None = None,
    *,
    drops_out_of_range: bool = False,
) -> Attempt:
    shape = None if dense_shape is None else dense_shape.astype(np.int64)
    if drops_out_of_range and shape is not None and indices.shape == values.shape[:1]:
        counts = (indices >= 0) & (indices < shape[0])
        indices, values = indices[counts], values[counts]
    return ApplySparse(indices.astype(np.int64), values, shape, int(local_step))


def _take_sparse(
    cells: Sequence[Cell], values: Sequence[Array], *, index_dtype: str, is_padded: bool = False
) -> KernelRun:
    """Returns indices and shape in `index_dtype`, an integer type that XLA programs can take."""
    gradient = yield from wait_for(cells[0], TakeGradient(int(values[0])))
    indices, slices, dense_shape = gradient
    if is_padded:
        indices, slices = _padded(indices, slices, dense_shape[0])
    return indices.astype(index_dtype), slices, dense_shape.astype(index_dtype)


def _padded(indices: Array, slices: Array, n_rows: int) -> tuple[Array, Array]:
    """Adds zeros, after the last row of the tensor, up to a power of two of slices."""
    n_added = (1 << max(len(indices) - 1, 0).bit_length()) - len(indices)
    padding = np.zeros((n_added, *slices.shape[1:]), slices.dtype)
    indices = np.concatenate([indices, np.full(n_added, n_rows, indices.dtype)])
    return indices, np.concatenate([slices, padding])


KERNELS: Mapping[str, Kernel] = {
    "accumulator.apply": single_attempt(_apply),
    "accumulator.apply_sparse": single_attempt(_apply_sparse),
    "accumulator.take": single_attempt(lambda count: TakeGradient(int(count))),
    "accumulator.take_sparse": _take_sparse,
    "accumulator.set_global_step": single_attempt(lambda step: SetGlobalStep(int(step))),
    "accumulator.num_accumulated": query(lambda accumulator: np.int32(accumulator.n_accumulated)),
}
