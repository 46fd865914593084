"""Host functions on counters and on rows of arrays, for input pipelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError, OutOfRangeError


def _count_up_to(before: Array, *, variable: str, limit: int) -> Sequence[Array]:
    """Checks that a counter has not reached its limit, and returns its value."""
    if before >= limit:
        raise OutOfRangeError(f"Reached limit of {limit}: {variable!r} is {before}")
    return (before,)


def _check_rows(rows: Array) -> Sequence[Array]:
    if not len(rows):
        raise InvalidArgumentError(f"expected at least one row, got shape {rows.shape}")
    return (rows,)


def _take_row(rows: Array, index: Array) -> Sequence[Array]:
    return (np.asarray(rows[int(index)], rows.dtype),)


def _keep_rows(keep: Array, *values: Array, single: bool) -> Sequence[Array]:
    rows = [value[np.newaxis] for value in values] if single else values
    n_rows = {len(value) for value in rows}
    if len(n_rows) > 1 or (keep.ndim and n_rows != {len(keep)}):
        raise InvalidArgumentError(
            f"all tensors need as many rows as keep_input, got {sorted(n_rows)} rows and "
            f"keep_input of shape {keep.shape}"
        )
    wanted = np.broadcast_to(keep, (n_rows.pop(),))
    return [value[wanted] for value in rows]


ROW_FUNCTIONS: Mapping[str, Callable[..., Sequence[Array]]] = {
    "count_up_to": _count_up_to,
    "check_rows": _check_rows,
    "take_row": _take_row,
    "keep_rows": _keep_rows,
}
