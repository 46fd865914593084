"""Atomic updates of variables: scatter updates of rows or slices, and a counter with a limit.

If an index is out of range, nothing is written. The updating program ensures that itself
(`guard_indices`), so that it need not wait for the check that fails the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import abstract, declared, is_compatible, is_known, is_static, refuse_host
from jflow.client.stateful.variable import VariableOperations, traced_line
from jflow.compiler.graph import Operation, Tensor, control_dependencies
from jflow.compiler.graph.calls import call
from jflow.compiler.graph.primitives import check_p

Body = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def _row_update(method: str) -> Body:
    """Returns the body that updates rows i[*n] with T[*n, *row] and drops those out of range."""

    def scatter(old: jax.Array, indices: jax.Array, updates: jax.Array) -> jax.Array:
        new: jax.Array = getattr(old.at[indices], method)(updates, mode="drop")
        return new

    return scatter


def _guarded_update(update: Body) -> Body:
    """Returns the body of an update that writes no row if one is out of range."""

    def scatter(old: jax.Array, indices: jax.Array, updates: jax.Array) -> jax.Array:
        return update(old, guard_indices(indices, old.shape[:1]), updates)

    return scatter


def _slice_update(method: str) -> Body:
    """Returns the body that updates the slices at index vectors i[*n, k] with T[*n, *rest]."""

    def scatter(old: jax.Array, indices: jax.Array, updates: jax.Array) -> jax.Array:
        guarded = guard_indices(indices, old.shape[: indices.shape[-1]])
        at = tuple(jnp.moveaxis(guarded, -1, 0))
        new: jax.Array = getattr(old.at[at], method)(updates, mode="drop")
        return new

    return scatter


ROWS_IN_RANGE = {
    name: _row_update(name)
    for name in ("set", "add", "subtract", "multiply", "divide", "min", "max")
}
ROWS = {name: _guarded_update(update) for name, update in ROWS_IN_RANGE.items()}
SLICES = {name: _slice_update(name) for name in ("set", "add", "subtract")}


def scatter(
    operations: VariableOperations, body: Body, indices: Any, updates: Any, name: str
) -> Any:
    """Updates rows or slices of a variable; see `jflow.scatter_update`.

    Args:
      operations: those of the variable.
      body: a value of `ROWS` or `SLICES`.
      indices, updates: arrays or tensors.
      name: name of the operation.

    Returns:
      The new value, or None if the update was executed immediately.
    """
    ref, shape = operations.ref, operations.shape
    if not is_static(shape):
        raise ValueError(
            f"{ref} was made with validate_shape=False and may change its size, so its rows "
            "cannot be updated; assign the whole value"
        )
    where = operations.operand(indices)
    if not jnp.issubdtype(where.dtype, jnp.integer):
        raise TypeError(f"indices into {ref} must be integers, got {where.dtype.name}")
    values = operations.operand(updates, ref.dtype)
    if jnp.promote_types(values.dtype, ref.dtype) != ref.dtype:
        raise TypeError(f"updates of {ref} have dtype {values.dtype.name}; convert them first")
    if isinstance(where, Tensor):
        refuse_host(where, name)
    is_rows = body in ROWS.values()
    depth = 1 if is_rows else (where.shape or (0,))[-1]
    if not is_known(depth) or not 1 <= depth <= len(shape):
        raise ValueError(f"indices of shape {declared(where.shape)} do not fit {ref}")
    n_dims = where.ndim if is_rows else where.ndim - 1
    if not (is_rows and values.shape == ()):
        updates_shape = (*where.shape[:n_dims], *shape[depth:])
        values = _check_updates(operations, where, values, updates_shape, n_dims)
    checks = _check_indices(operations, where, shape[:depth]) if 0 not in where.shape else None
    with control_dependencies([checks] if isinstance(checks, Operation) else []):
        return operations.update(body, [where, values], name, is_guarded=True)


def count_up_to(operations: VariableOperations, limit: int, name: str) -> Tensor:
    """Increments a variable atomically up to a limit; see `jflow.count_up_to`."""
    ref = operations.ref
    is_counter = operations.shape == () and jnp.issubdtype(ref.dtype, jnp.integer)
    if operations.is_eager or not is_counter:
        raise TypeError(
            "expected a scalar integer variable of graph code to count with, got "
            f"{'eager ' if operations.is_eager else ''}{ref} of shape {operations.shape} and dtype "
            f"{ref.dtype.name}"
        )
    graph = operations.op.graph
    # Read and update are in one segment and so in one critical section: no other step writes
    # between them.
    before = operations.read("read_value")
    with control_dependencies([before]):
        counted = operations.update(_next_count, [operations.operand(limit, ref.dtype)], "Update")
    with control_dependencies([counted]):
        attributes = {"variable": f"{ref.name}:0", "limit": limit}
        op = call(
            graph,
            "count_up_to",
            [before],
            [abstract((), ref.dtype)],
            name=name,
            attributes=attributes,
        )
    return op.outputs[0]


def _next_count(value: Any, limit: Any) -> Any:
    return jnp.where(value < limit, value + 1, value)


def _check_updates(
    operations: VariableOperations, where: Any, values: Any, wanted: tuple[Any, ...], n_dims: int
) -> Any:
    """Returns the updates; if their shape is not known to be right, the step checks it."""
    if values.shape == wanted:
        return values
    if not is_compatible(wanted, values.shape):
        raise ValueError(
            f"indices of shape {declared(where.shape)} into {operations.ref} need updates of shape "
            f"{declared(wanted)}, got {declared(values.shape)}"
        )
    return operations.check_shape(values, wanted, "cannot scatter into", where, n_dims)


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


def report_indices(indices: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Returns whether an index is out of range, and the first that is.

    Args:
      indices: i[..., len(sizes)], indices into dimensions; i[...] for a single one.
      sizes: sizes of these dimensions.

    Returns:
      i32[4]: 1 if an index is out of range, its position, its value, and the size of its dimension.
    """
    flat = jnp.asarray(_widen_indices(indices)).reshape(-1, len(sizes))
    is_outside = _is_outside(flat, sizes)
    row, column = jnp.unravel_index(jnp.argmax(is_outside), is_outside.shape)
    size = jnp.array(sizes, jnp.int32)[column]
    return jnp.stack([is_outside.any(), row, flat[row, column], size]).astype(jnp.int32)


def guard_indices(indices: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Moves all indices out of range if one of them is, so that a scatter drops all updates.

    Args:
      indices, sizes: as for `report_indices`.

    Returns:
      i32[*indices.shape]: the indices, or 2**31 - 1 in place of each.
    """
    is_outside = _is_outside(_widen_indices(indices).reshape(-1, len(sizes)), sizes)
    return jnp.where(is_outside.any(), np.int32(2**31 - 1), indices.astype(np.int32))


def _widen_indices(indices: jax.Array) -> jax.Array:
    """Widens small integers, so that the dtype of the indices can hold a size."""
    return indices.astype(jnp.int32) if indices.dtype.itemsize < 4 else indices


def _is_outside(flat: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Returns which indices, i[n, len(sizes)], are out of range: bool[n, len(sizes)]."""
    return (flat < 0) | (flat >= jnp.array(sizes, jnp.int32).astype(flat.dtype))
