"""The operations on accumulators that plans call."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

import numpy as np

from jflow.execution.waiting import Operation, Wanted, attempting, looking, settled
from jflow.resources import (
    ApplyGradient,
    ApplySparse,
    Attempt,
    Holder,
    SetGlobalStep,
    TakeGradient,
)
from jflow.values import Array


def _apply(gradient: Array, local_step: Array) -> Attempt:
    return ApplyGradient(gradient, int(local_step))


def _apply_sparse(
    local_step: Array, indices: Array, values: Array, dense_shape: Array | None = None
) -> Attempt:
    shape = None if dense_shape is None else dense_shape.astype(np.int64)
    return ApplySparse(indices.astype(np.int64), values, shape, int(local_step))


def _take_sparse(
    held: Sequence[Holder], values: Sequence[Array], *, index_dtype: str
) -> Generator[Wanted, None, Sequence[Array]]:
    """Indices and shapes are in the integers that programs of the session can take."""
    taken = yield from settled(held[0], TakeGradient(int(values[0])))
    indices, slices, dense_shape = taken
    return indices.astype(index_dtype), slices, dense_shape.astype(index_dtype)


ACCUMULATOR_OPERATIONS: Mapping[str, Operation] = {
    "accumulator.apply": attempting(_apply),
    "accumulator.apply_sparse": attempting(_apply_sparse),
    "accumulator.take": attempting(lambda count: TakeGradient(int(count))),
    "accumulator.take_sparse": _take_sparse,
    "accumulator.set_global_step": attempting(lambda step: SetGlobalStep(int(step))),
    "accumulator.num_accumulated": looking(lambda accumulator: np.int32(accumulator.n_accumulated)),
}
