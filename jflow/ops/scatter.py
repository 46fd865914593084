"""Scatter updates: atomic updates of some rows of a variable, in place.

If an index is out of range, nothing is written. The program that updates sees to that itself
(`guard_indices`), so that it need not wait for the check that fails the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jflow.graph import Operation, Tensor, control_dependencies
from jflow.graph.primitives import check_p
from jflow.ops.indices import guard_indices, report_indices
from jflow.ops.variable import Variable, read
from jflow.stateful.variable import VariableOperations, traced_line
from jflow.values import declared, is_compatible, is_known, is_static, refuse_host

Body = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def _along(method: str) -> Body:
    """An update of rows, with indices i[*n] and updates T[*n, *row]."""

    def scatter(old: jax.Array, indices: jax.Array, updates: jax.Array) -> jax.Array:
        at = guard_indices(indices, old.shape[:1])
        new: jax.Array = getattr(old.at[at], method)(updates, mode="drop")
        return new

    return scatter


def _inside(method: str) -> Body:
    """An update of slices, with index vectors i[*n, k] and updates T[*n, *rest]."""

    def scatter(old: jax.Array, indices: jax.Array, updates: jax.Array) -> jax.Array:
        guarded = guard_indices(indices, old.shape[: indices.shape[-1]])
        at = tuple(jnp.moveaxis(guarded, -1, 0))
        new: jax.Array = getattr(old.at[at], method)(updates, mode="drop")
        return new

    return scatter


_ROWS = {
    name: _along(name) for name in ("set", "add", "subtract", "multiply", "divide", "min", "max")
}
_ELEMENTS = {name: _inside(name) for name in ("set", "add", "subtract")}


def scatter_update(ref: Variable, indices: Any, updates: Any, name: str = "ScatterUpdate") -> Any:
    """Assigns to rows of a variable: `ref[indices] = updates`.

    Args:
      ref: T[m, *row], the variable.
      indices: integers of any shape; if one occurs twice, either of its updates may win.
      updates: T[*indices.shape, *row], or a scalar.
      name: name of the operation.

    Returns:
      The new value, T[m, *row], as `Variable.assign` returns it.

    Raises:
      TypeError: if the indices are not integers, or the updates do not convert to T.
      ValueError: if the shapes are not compatible.
      InvalidArgumentError: in the step, if an index is out of range (nothing is written then), or
        if a shape that was unknown before is not compatible.
    """
    return _scatter(ref, indices, updates, _ROWS["set"], 1, name)


def scatter_add(ref: Variable, indices: Any, updates: Any, name: str = "ScatterAdd") -> Any:
    """Adds to rows of a variable: `ref[indices] += updates`.

    Updates of an index that occurs several times accumulate. Takes, returns and raises as
    `scatter_update`.
    """
    return _scatter(ref, indices, updates, _ROWS["add"], 1, name)


def scatter_sub(ref: Variable, indices: Any, updates: Any, name: str = "ScatterSub") -> Any:
    """Subtracts from rows of a variable: `ref[indices] -= updates`; see `scatter_add`."""
    return _scatter(ref, indices, updates, _ROWS["subtract"], 1, name)


def scatter_mul(ref: Variable, indices: Any, updates: Any, name: str = "ScatterMul") -> Any:
    """Multiplies rows of a variable: `ref[indices] *= updates`; see `scatter_add`."""
    return _scatter(ref, indices, updates, _ROWS["multiply"], 1, name)


def scatter_div(ref: Variable, indices: Any, updates: Any, name: str = "ScatterDiv") -> Any:
    """Divides rows of a floating-point variable: `ref[indices] /= updates`; see `scatter_add`."""
    return _scatter(ref, indices, updates, _ROWS["divide"], 1, name)


def scatter_min(ref: Variable, indices: Any, updates: Any, name: str = "ScatterMin") -> Any:
    """Takes the elementwise minimum of rows of a variable and the updates; see `scatter_add`."""
    return _scatter(ref, indices, updates, _ROWS["min"], 1, name)


def scatter_max(ref: Variable, indices: Any, updates: Any, name: str = "ScatterMax") -> Any:
    """Takes the elementwise maximum of rows of a variable and the updates; see `scatter_add`."""
    return _scatter(ref, indices, updates, _ROWS["max"], 1, name)


def scatter_nd_update(
    ref: Variable, indices: Any, updates: Any, name: str = "ScatterNdUpdate"
) -> Any:
    """Assigns to slices of a variable that index vectors name.

    Args:
      ref: T[m1, …, mk, *rest], the variable.
      indices: i[*n, k], each vector an index into the first k dimensions.
      updates: T[*n, *rest].
      name: name of the operation.

    Returns:
      The new value, as `scatter_update`.

    Raises:
      TypeError, ValueError, InvalidArgumentError: as `scatter_update`.
    """
    return _scatter(ref, indices, updates, _ELEMENTS["set"], None, name)


def scatter_nd_add(ref: Variable, indices: Any, updates: Any, name: str = "ScatterNdAdd") -> Any:
    """Adds to slices of a variable that index vectors name; see `scatter_nd_update`."""
    return _scatter(ref, indices, updates, _ELEMENTS["add"], None, name)


def scatter_nd_sub(ref: Variable, indices: Any, updates: Any, name: str = "ScatterNdSub") -> Any:
    """Subtracts from slices of a variable that index vectors name; see `scatter_nd_update`."""
    return _scatter(ref, indices, updates, _ELEMENTS["subtract"], None, name)


def _scatter(
    ref: Variable, indices: Any, updates: Any, body: Body, depth: int | None, name: str
) -> Any:
    """Applies `body` to the slices that indices into the first dimensions name.

    There are `depth` such dimensions; if it is None, as many as the index vectors have components.
    """
    if not isinstance(ref, Variable):
        raise TypeError(f"expected a variable to update, got {ref!r}")
    if not is_static(ref.shape):
        raise ValueError(
            f"{ref!r} was made with validate_shape=False and may change its size, so its rows "
            "cannot be updated; assign the whole value"
        )
    operations = ref.operations
    where = operations.operand(read(indices))
    if not jnp.issubdtype(where.dtype, jnp.integer):
        raise TypeError(f"indices into {ref!r} must be integers, got {where.dtype.name}")
    values = operations.operand(read(updates), ref.dtype)
    if jnp.promote_types(values.dtype, ref.dtype) != ref.dtype:
        raise TypeError(f"updates of {ref!r} have dtype {values.dtype.name}; convert them first")
    if isinstance(where, Tensor):
        refuse_host(where, name)
    is_rows = depth is not None
    depth = depth or (where.shape or (0,))[-1]
    if not is_known(depth) or not 1 <= depth <= ref.ndim:
        raise ValueError(f"indices of shape {declared(where.shape)} do not fit {ref!r}")
    n_dims = where.ndim if is_rows else where.ndim - 1
    if not (is_rows and values.shape == ()):
        values = _checked(ref, where, values, (*where.shape[:n_dims], *ref.shape[depth:]), n_dims)
    checks = _check_indices(operations, where, ref.shape[:depth]) if 0 not in where.shape else None
    with control_dependencies([checks] if isinstance(checks, Operation) else []):
        written = operations.update(body, [where, values], name, is_guarded=True)
    return ref if written is None else written


def _checked(ref: Variable, where: Any, values: Any, wanted: tuple[Any, ...], n_dims: int) -> Any:
    """The updates; the step checks their shape if it is not known to be the wanted one."""
    if values.shape == wanted:
        return values
    if not is_compatible(wanted, values.shape):
        raise ValueError(
            f"indices of shape {declared(where.shape)} into {ref!r} need updates of shape "
            f"{declared(wanted)}, got {declared(values.shape)}"
        )
    return ref.operations.check_shape(values, wanted, "cannot scatter into", where, n_dims)


def _check_indices(operations: VariableOperations, indices: Any, sizes: tuple[int, ...]) -> Any:
    """Adds a check that fails the step with InvalidArgumentError if an index is out of range.

    Args:
      operations: those of the variable.
      indices: i[..., len(sizes)], indices into dimensions of the variable; i[...] for a single one.
      sizes: sizes of these dimensions.

    Returns:
      In graph code the operation, which the update has to wait for.
    """
    graph = operations.graph_of((indices,))
    if graph is None:
        return operations.bind(check_p, (report_indices(indices, sizes),), **traced_line())
    report = graph.apply(report_indices, (indices, sizes))
    return graph.add(check_p, [report.var], [], name="check_indices", variable=operations.ref)
