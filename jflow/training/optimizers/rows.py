"""Updates of some rows of variables: gradients that are rows, and state that is updated by row.

Only rows whose index occurs are read and written, also in the state of the optimizer: what an
optimizer would do to a row whose gradient is zero, such as a decay of its averages, is left out
until the row occurs again. That is what TensorFlow's sparse updates do (its Adam: `LazyAdam`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp

from jflow.client.ops import IndexedSlices, Variable
from jflow.client.ops.variable import VariableLike
from jflow.client.variables import ShardedVariable
from jflow.compiler.graph import Tensor, colocate_with
from jflow.compiler.graph.row_gathers import RowGather


class RowGradient(NamedTuple):
    """Rows of the gradient of an eager variable, as a pytree of arrays; see `IndexedSlices`.

    Attributes:
      values: T[n, *row].
      indices: i[n]; those out of range do not count.
    """

    values: Any
    indices: Any


def as_pytree(grad: Any) -> Any:
    """Returns a gradient of an eager variable as a pytree of arrays."""
    return RowGradient(grad.values, grad.indices) if isinstance(grad, IndexedSlices) else grad


def shards_of(variable: VariableLike) -> list[Variable]:
    """Returns the shards of an eager variable; the variable itself if it is not sharded."""
    if isinstance(variable, ShardedVariable):
        return variable.variables
    assert isinstance(variable, Variable)
    return [variable]


def flat_indices(indices: Any, n_rows: int, clips: bool) -> Any:
    """Returns the indices of a gather of rows, i[n], with those out of range as it takes them."""
    flat = indices.reshape(-1)
    return jnp.clip(flat, 0, n_rows - 1) if clips else flat


class RowSums(NamedTuple):
    """Rows of a variable to update, each with the sum of its gradients.

    Attributes:
      indices: i32[n], each row once; beyond the number of rows where there are fewer than n.
      grads: T[n, *row], the sums of the gradients of each row.
    """

    indices: Any
    grads: Any


def slices_of(
    variable: Variable, gathers: Sequence[RowGather], slopes: Sequence[Tensor | None]
) -> IndexedSlices | None:
    """Returns the gradient with respect to a variable that is used by row only.

    Args:
      variable: T[m, *row].
      gathers: the operations that take its rows.
      slopes: the derivatives with respect to their results; None where there is none.
    """
    pairs = [(g, slope) for g, slope in zip(gathers, slopes, strict=True) if slope is not None]
    if not pairs:
        return None
    programs = tuple(gather.program for gather, _ in pairs)
    clips = tuple(gather.clips for gather, _ in pairs)
    row = variable.shape[1:]

    def joined(values: Sequence[Any], inputs: Sequence[Sequence[Any]]) -> tuple[Any, Any]:
        indices = []
        for program, others, is_clipped in zip(programs, inputs, clips, strict=True):
            (own,) = jex.jaxpr_as_fun(program)(*others)
            indices.append(flat_indices(own, variable.shape[0], is_clipped))
        rows = [value.reshape(-1, *row) for value in values]
        return jnp.concatenate(rows), jnp.concatenate(indices)

    with colocate_with(variable, ignore_existing=True):
        args = ([slope for _, slope in pairs], [gather.others for gather, _ in pairs])
        values, indices = variable.graph.apply(joined, args, name="rows")
    return IndexedSlices(values, indices, variable.shape)


def sum_rows(values: jax.Array, indices: jax.Array, n_rows: int) -> tuple[jax.Array, jax.Array]:
    """Returns the indices and sums of `RowSums`, for a variable of so many rows."""
    at = indices.astype(jnp.int32)
    at = jnp.where((at < 0) | (at >= n_rows), n_rows, at)
    order = jnp.argsort(at)
    ordered = at[order]
    is_new = jnp.diff(ordered, prepend=-1) != 0
    place = jnp.cumsum(is_new) - 1
    sums = jnp.zeros_like(values).at[place].add(values[order])
    unique = jnp.full_like(at, n_rows).at[place].set(ordered)
    return unique, sums


def rows_at(value: jax.Array, indices: jax.Array) -> jax.Array:
    """Rows of a value, T[n, *row]; zeros for indices beyond its rows."""
    rows: jax.Array = value.at[indices].get(mode="fill", fill_value=0)
    return rows


def with_rows(value: jax.Array, indices: jax.Array, rows: jax.Array) -> jax.Array:
    """Returns a value with other rows at indices; those beyond its rows are dropped."""
    new: jax.Array = value.at[indices].set(rows, mode="drop")
    return new
