"""Host functions and kernels, by the names under which plans call them.

A *function* computes immediately. A *kernel* acts on resources and may have to wait; each kernel
belongs to a kind of resource (`resources/kinds.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jflow.base.values import NUMBERS, Array, as_strings, is_compatible, shape_text
from jflow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotANumberError,
    OutOfRangeError,
)
from jflow.plan import NAN_CHECK
from jflow.state.records import DECODERS, SUMMARIES
from jflow.state.resources import KERNELS, Kernel
from jflow.state.saves import READ_TENSOR
from jflow.task.execution.checks import CHECKS
from jflow.task.execution.parts import PART_FUNCTIONS

_MAX_NAMES = 20
"""At most so many variables are listed in a message."""

HostFunction = Callable[..., Sequence[Array]]
"""Takes host arrays, and attributes by name, and returns arrays; none may be modified later."""


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


def _pad_ids(indices: Array, ids: Array, dense_shape: Array) -> Sequence[Array]:
    """Returns the place, row and id of each element of a sparse matrix, to a power of two of them.

    The others repeat the last id, so that no row of a table is used in addition, and belong to the
    row after the last one.
    """
    n_ids = len(ids)
    n_padded = 1 << (n_ids - 1).bit_length() if n_ids else 0
    places = np.minimum(np.arange(n_padded), n_ids - 1).astype(np.int32)
    rows = indices[places, 0]
    rows[n_ids:] = dense_shape[0]
    return places, rows, ids[places]


def _size_source(size: Array) -> Sequence[Array]:
    """Returns an array that has the size and no elements."""
    if size < 0:
        raise InvalidArgumentError(f"expected a size of at least 0, got {int(size)}")
    return (np.zeros((int(size), 0), bool),)


def _true_indices(mask: Array) -> Sequence[Array]:
    """Returns the positions of the elements that are not zero, in the order of rows."""
    return (np.argwhere(mask).astype(np.int32),)


def _unique(values: Array) -> Sequence[Array]:
    """Returns the different elements by first occurrence, where each is, and their counts."""
    _, first, places, counts = np.unique(
        values, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    order = np.argsort(first)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return (
        values[first[order]],
        ranks[places].astype(np.int32),
        counts[order].astype(np.int32),
    )


def _identity(value: Array) -> Sequence[Array]:
    return (value,)


def _check_indices(report: Array, variable: Array) -> Sequence[Array]:
    """Raises InvalidArgumentError if an index is out of range."""
    is_bad, position, index, size = np.asarray(report).tolist()
    if is_bad:
        raise InvalidArgumentError(
            f"{variable.item().decode()}: indices[{position}] = {index} is not in [0, {size}); "
            "nothing was written"
        )
    return ()


def _missing_names(*present: Array, names: list[str]) -> Sequence[Array]:
    """Returns the names of the variables that are not initialized, string[n]."""
    return (as_strings(_missing(present, names)),)


def _assert_initialized(*present: Array, names: list[str]) -> Sequence[Array]:
    if missing := _missing(present, names):
        raise FailedPreconditionError(
            f"Attempting to use uninitialized value {missing[0]}: {len(missing)} of {len(names)} "
            f"variables are not initialized: {', '.join(missing[:_MAX_NAMES])}"
        )
    return ()


def _missing(present: Sequence[Array], names: list[str]) -> list[str]:
    return [name for name, is_there in zip(names, present, strict=True) if not is_there]


def _check_nans(*values: Array, ops: list[str], results: list[int]) -> Sequence[Array]:
    """Raises NotANumberError if results of a program contain NaN.

    Args:
      values: the values of its operations, in order.
      ops: the names of these operations.
      results: the indices of the values in which NaN is an error.
    """
    if not any(np.isnan(values[i]).any() for i in results):
        return ()
    first = next(i for i, value in enumerate(values) if np.isnan(value).any())
    raise NotANumberError(ops[first], values[first].dtype, values[first].shape)


def _cast(value: Array, *, dtype: str) -> Sequence[Array]:
    if dtype not in NUMBERS:
        raise InvalidArgumentError(f"expected a numeric dtype, got {dtype!r}")
    return (value.astype(NUMBERS[dtype]),)


def _ensure_shape(value: Array, *, shape: list[int | None], what: str = "") -> Sequence[Array]:
    if not is_compatible(shape, value.shape):
        expected = f"expected a value of shape {shape_text(tuple(shape))}, got {value.shape}"
        raise InvalidArgumentError(f"{what}: {expected}" if what else expected)
    return (value,)


def _ensure_shape_like(
    value: Array, like: Array, *, leading: int, shape: list[int | None], what: str
) -> Sequence[Array]:
    """Like `_ensure_shape`, for a shape that begins with the leading sizes of another value."""
    return _ensure_shape(value, shape=[*like.shape[:leading], *shape], what=what)


_FUNCTIONS: Mapping[str, HostFunction] = {
    "identity": _identity,
    "check_indices": _check_indices,
    "missing_names": _missing_names,
    "assert_initialized": _assert_initialized,
    NAN_CHECK: _check_nans,
    "cast": _cast,
    "ensure_shape": _ensure_shape,
    "ensure_shape_like": _ensure_shape_like,
    "count_up_to": _count_up_to,
    "check_rows": _check_rows,
    "take_row": _take_row,
    "keep_rows": _keep_rows,
    "pad_ids": _pad_ids,
    "size_source": _size_source,
    "true_indices": _true_indices,
    "unique": _unique,
    **PART_FUNCTIONS,
    **CHECKS,
    **DECODERS,
    **SUMMARIES,
}


UNPREDICTABLE = frozenset({"serialize_many_sparse", READ_TENSOR})
"""The functions whose time follows from values, not from the sizes of their arguments."""


def host_function(name: str) -> HostFunction | None:
    """Returns the function of this name, or None."""
    return _FUNCTIONS.get(name)


def host_kernel(name: str) -> Kernel:
    """Returns the kernel of this name.

    Raises:
      InvalidArgumentError: if it does not exist.
    """
    kernel = KERNELS.get(name)
    if kernel is None:
        raise InvalidArgumentError(
            f"a plan calls the unknown host function {name!r}; expected one of "
            f"{', '.join(sorted([*_FUNCTIONS, *KERNELS]))}"
        )
    return kernel
