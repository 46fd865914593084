"""Scatter updates as functions of variables; see the methods of `Variable`."""

from __future__ import annotations

from typing import Any

from jflow.client.ops.in_place import check_flag
from jflow.client.ops.variable import Variable


def scatter_update(
    ref: Variable,
    indices: Any,
    updates: Any,
    use_locking: bool | None = None,
    name: str = "ScatterUpdate",
) -> Any:
    """Assigns to rows of a variable: `ref[indices] = updates`.

    Args:
      ref: T[m, *row], the variable.
      indices: integers of any shape; if one occurs twice, either of its updates may win.
      updates: T[*indices.shape, *row], or a scalar.
      use_locking: without effect: updates are always atomic.
      name: name of the operation.

    Returns:
      The new value, T[m, *row], as `Variable.assign` returns it.

    Raises:
      TypeError: if the indices are not integers, or the updates do not convert to T.
      ValueError: if the shapes are not compatible.
      InvalidArgumentError: in the step, if an index is out of range (nothing is written then), or
        if a shape that was unknown before is not compatible.
    """
    return _of(ref).scatter_update(indices, updates, use_locking, name)


def scatter_add(
    ref: Variable,
    indices: Any,
    updates: Any,
    use_locking: bool | None = None,
    name: str = "ScatterAdd",
) -> Any:
    """Adds to rows of a variable: `ref[indices] += updates`.

    Updates of an index that occurs several times accumulate. Takes, returns and raises as
    `scatter_update`.
    """
    return _of(ref).scatter_add(indices, updates, use_locking, name)


def scatter_sub(
    ref: Variable,
    indices: Any,
    updates: Any,
    use_locking: bool | None = None,
    name: str = "ScatterSub",
) -> Any:
    """Subtracts from rows of a variable: `ref[indices] -= updates`; see `scatter_add`."""
    return _of(ref).scatter_sub(indices, updates, use_locking, name)


def scatter_mul(
    ref: Variable,
    indices: Any,
    updates: Any,
    use_locking: bool | None = None,
    name: str = "ScatterMul",
) -> Any:
    """Multiplies rows of a variable: `ref[indices] *= updates`; see `scatter_add`."""
    return _of(ref).scatter_mul(indices, updates, use_locking, name)


def scatter_div(
    ref: Variable,
    indices: Any,
    updates: Any,
    use_locking: bool | None = None,
    name: str = "ScatterDiv",
) -> Any:
    """Divides rows of a floating-point variable: `ref[indices] /= updates`; see `scatter_add`."""
    return _of(ref).scatter_div(indices, updates, use_locking, name)


def scatter_min(
    ref: Variable,
    indices: Any,
    updates: Any,
    use_locking: bool | None = None,
    name: str = "ScatterMin",
) -> Any:
    """Sets rows to the elementwise minimum of them and the updates; see `scatter_add`."""
    return _of(ref).scatter_min(indices, updates, use_locking, name)


def scatter_max(
    ref: Variable,
    indices: Any,
    updates: Any,
    use_locking: bool | None = None,
    name: str = "ScatterMax",
) -> Any:
    """Sets rows to the elementwise maximum of them and the updates; see `scatter_add`."""
    return _of(ref).scatter_max(indices, updates, use_locking, name)


def scatter_nd_update(
    ref: Variable,
    indices: Any,
    updates: Any,
    use_locking: bool | None = None,
    name: str = "ScatterNdUpdate",
) -> Any:
    """Assigns to slices of a variable that are given by index vectors.

    Args:
      ref: T[m1, …, mk, *rest], the variable.
      indices: i[*n, k], each vector an index into the first k dimensions.
      updates: T[*n, *rest].
      use_locking, name: as for `scatter_update`.

    Returns:
      The new value, as `scatter_update`.

    Raises:
      TypeError, ValueError, InvalidArgumentError: as `scatter_update`.
    """
    check_flag("use_locking", use_locking)
    return _of(ref).scatter_nd_update(indices, updates, name)


def scatter_nd_add(
    ref: Variable,
    indices: Any,
    updates: Any,
    use_locking: bool | None = None,
    name: str = "ScatterNdAdd",
) -> Any:
    """Adds to slices of a variable that are given by index vectors; see `scatter_nd_update`."""
    check_flag("use_locking", use_locking)
    return _of(ref).scatter_nd_add(indices, updates, name)


def scatter_nd_sub(
    ref: Variable,
    indices: Any,
    updates: Any,
    use_locking: bool | None = None,
    name: str = "ScatterNdSub",
) -> Any:
    """Subtracts from slices of a variable given by index vectors; see `scatter_nd_update`."""
    check_flag("use_locking", use_locking)
    return _of(ref).scatter_nd_sub(indices, updates, name)


def _of(ref: Any) -> Variable:
    if not isinstance(ref, Variable):
        raise TypeError(f"expected a variable to update, got {ref!r}")
    return ref
