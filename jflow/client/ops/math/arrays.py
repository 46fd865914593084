"""Functions that arrange the elements of tensors, under TensorFlow's names."""

# Arguments have TensorFlow's names, also where Python has them.
# ruff: noqa: A001, A002

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import as_dtype
from jflow.client.ops.lift import operation
from jflow.client.ops.math.conversions import limits_of
from jflow.client.ops.math.sizes import known_int, known_ints, size_of, sizes_of
from jflow.compiler.graph import Symbolic

_concat = operation(
    lambda *values, axis: jnp.concatenate([*map(jnp.asarray, values)], axis), "concat"
)
_stack = operation(lambda *values, axis: jnp.stack([*map(jnp.asarray, values)], axis), "stack")
_unstack = operation(lambda value, axis: list(jnp.unstack(value, axis=axis)), "unstack")
_split = operation(jnp.split, "split")
_expand_dims = operation(jnp.expand_dims, "ExpandDims")
_squeeze = operation(jnp.squeeze, "Squeeze")
_flip = operation(jnp.flip, "ReverseV2")
_roll = operation(jnp.roll, "Roll")
_sort = operation(jnp.sort, "sort")
_argsort = operation(jnp.argsort, "argsort")


def concat(values: Any, axis: Any, name: str | None = None) -> Any:
    """Returns tensors one after another along an axis.

    Args:
      values: a list of tensors, equal in all other sizes; or one tensor, which is returned.
      axis: the axis.
      name: name of the operation.
    """
    parts = values if isinstance(values, list | builtins.tuple) else [values]
    return _concat(*parts, axis=known_int(axis, "axis"), name=name)


def stack(values: Any, axis: int = 0, name: str | None = None) -> Any:
    """Returns tensors of one shape as slices of a tensor, along a new axis."""
    return _stack(*values, axis=axis, name=name)


def unstack(
    value: Any, num: int | None = None, axis: int = 0, name: str | None = None
) -> list[Any]:
    """Returns the slices of a tensor along an axis as a list.

    Args:
      value: T[*shape]; the size of the axis must be known.
      num: that size; None for what it is.
      axis: the axis.
      name: name of the operation.

    Raises:
      ValueError: if the size is unknown, or `num` is another one.
    """
    size = getattr(value, "shape", jnp.shape(value) if num is None else (num,))[axis]
    if getattr(size, "value", size) is None or (num is not None and num != size):
        raise ValueError(f"cannot make {num} slices of size {size} of axis {axis} of {value!r}")
    slices: list[Any] = _unstack(value, axis=axis, name=name)
    return slices


def split(
    value: Any,
    num_or_size_splits: Any,
    axis: Any = 0,
    num: int | None = None,
    name: str | None = None,
) -> list[Any]:
    """Returns the parts of a tensor along an axis.

    Args:
      value: T[*shape].
      num_or_size_splits: the number of equal parts, or their sizes, one of which can be -1.
      axis: the axis.
      num: the number of sizes; they are known, so it says nothing more.
      name: name of the operation.

    Raises:
      ValueError: if the sizes do not fit.
    """
    along = known_int(axis, "axis")
    is_number = not isinstance(num_or_size_splits, list | builtins.tuple) and not getattr(
        num_or_size_splits, "ndim", 0
    )
    if is_number:
        at: Any = known_int(num_or_size_splits, "the number of parts")
        return list(_split(value, indices_or_sections=at, axis=along, name=name))
    sizes = known_ints(num_or_size_splits, "the sizes of parts")
    total = np.shape(value)[along]
    if -1 in sizes:
        sizes[sizes.index(-1)] = total - builtins.sum(sizes) - 1
    is_known = isinstance(total, int)
    if is_known and (builtins.sum(sizes) != total or builtins.min(sizes, default=0) < 0):
        raise ValueError(f"parts of {sizes} do not add up to the size {total} of axis {along}")
    ends = [builtins.sum(sizes[:i]) for i in builtins.range(1, len(sizes))]
    return list(_split(value, indices_or_sections=builtins.tuple(ends), axis=along, name=name))


def expand_dims(input: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Any:
    """Returns a tensor with one more axis, of size 1."""
    along = known_int(axis if axis is not None else dim, "axis")
    return _expand_dims(input, axis=along, name=name)


def squeeze(input: Any, axis: Any = None, name: str | None = None, squeeze_dims: Any = None) -> Any:
    """Returns a tensor without axes of size 1: these, or all if `axis` is None."""
    chosen = axis if axis is not None else squeeze_dims
    axes = None if not chosen and chosen != 0 else builtins.tuple(known_ints(chosen, "axis"))
    return _squeeze(input, axis=axes, name=name)


def tile(input: Any, multiples: Any, name: str | None = None) -> Any:
    """Returns a tensor repeated along each axis.

    Args:
      input: T[*shape].
      multiples: how often, for each axis; a shape as `zeros` takes.
      name: name of the operation.

    Raises:
      ValueError: if there are more or less multiples than axes.
    """
    return _tile(input, reps=sizes_of(multiples), name=name)


def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Any:
    """Returns a tensor whose elements, or slices along an axis, are repeated a number of times.

    Args:
      input: T[*shape].
      repeats: how often, one number for all, or a known one for each of them.
      axis: the axis; None for the elements in their order.
      name: name of the operation.
    """
    is_one = not isinstance(repeats, list | builtins.tuple) and not getattr(repeats, "ndim", 0)
    given = size_of(repeats) if is_one else builtins.tuple(known_ints(repeats, "repeats"))
    return _repeat(input, repeats=given, axis=axis, name=name)


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Any:
    """Returns a tensor in reverse order along axes."""
    return _flip(tensor, axis=builtins.tuple(known_ints(axis, "axis")), name=name)


def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Any:
    """Returns a tensor whose elements are moved along axes, and come in again at the other end."""
    given = {"shift": builtins.tuple(known_ints(shift, "shift"))}
    return _roll(input, **given, axis=builtins.tuple(known_ints(axis, "axis")), name=name)


def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    name: str | None = None,
    constant_values: Any = 0,
) -> Any:
    """Returns a tensor with elements added before and after it.

    Args:
      tensor: T[*shape].
      paddings: i[rank, 2], how many before and after, for each axis.
      mode: "CONSTANT", "REFLECT" (without the edge) or "SYMMETRIC" (with it).
      name: name of the operation.
      constant_values: the value of the added elements in mode CONSTANT.

    Raises:
      ValueError: if the mode is another one, or there are paddings for more or less axes.
    """
    filling = {"constant_values": constant_values} if mode.upper() == "CONSTANT" else {}
    if mode.upper() not in ("CONSTANT", "REFLECT", "SYMMETRIC"):
        raise ValueError(f"expected the mode CONSTANT, REFLECT or SYMMETRIC, got {mode!r}")
    widths = builtins.tuple(sizes_of(row) for row in _rows(paddings))
    return _pad(tensor, pad_width=widths, mode=mode.lower(), **filling, name=name)


def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Any:
    """Returns a slice of a tensor.

    Args:
      input_: T[*shape].
      begin: where it begins, for each axis. If only a step knows that, a slice that would go
        beyond the end begins earlier, as `jax.lax.dynamic_slice` does.
      size: its sizes; -1 for all up to the end, where the beginning is known.
      name: name of the operation.
    """
    return _dynamic_slice(input_, begin=_rows(begin), sizes=sizes_of(size), name=name)


def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> Any:
    """Returns vectors with `on_value` at an index and `off_value` elsewhere.

    Args:
      indices: i[*n]; an index outside of the vector gives one of `off_value` only.
      depth: length of the vectors.
      on_value, off_value: 1 and 0 if None.
      axis: the axis of the vectors; None for the last one.
      dtype: the dtype; None for that of the values, float32 if they are None too.
      name: name of the operation.
    """
    kind = as_dtype(dtype) if dtype is not None else None
    given = {"depth": size_of(depth), "axis": -1 if axis is None else axis, "dtype": kind}
    return _one_hot(indices, on=on_value, off=off_value, **given, name=name)


def sort(values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Any:
    """Returns a tensor sorted along an axis; the direction is "ASCENDING" or "DESCENDING"."""
    return _sort(values, axis=axis, descending=_is_descending(direction), name=name)


def argsort(
    values: Any,
    axis: int = -1,
    direction: str = "ASCENDING",
    stable: bool = False,
    name: str | None = None,
) -> Any:
    """Returns the indices that sort a tensor along an axis; equal elements keep their order."""
    return _argsort(values, axis=axis, descending=_is_descending(direction), name=name)


def transpose(a: Any, perm: Any = None, name: str | None = None, conjugate: bool = False) -> Any:
    """Returns a tensor with its axes in another order, reversed if `perm` is None."""
    axes = None if perm is None else builtins.tuple(known_ints(perm, "perm"))
    return _transpose(a, perm=axes, conjugate=conjugate, name=name)


def meshgrid(*args: Any, indexing: str = "xy", name: str | None = None) -> list[Any]:
    """Returns the coordinates of a grid as tensors, one for each vector of coordinates.

    Args:
      *args: T[n_i], the coordinates along each axis.
      indexing: "xy" to exchange the first two axes of the results, or "ij".
      name: name of the operation.
    """
    return list(_meshgrid(*args, indexing=indexing, name=name))


def invert_permutation(x: Any, name: str | None = None) -> Any:
    """Returns the inverse of a permutation, i[n] of i[n]."""
    return _inverted(x, name=name)


def reverse_sequence(
    input: Any,
    seq_lengths: Any,
    seq_axis: int | None = None,
    batch_axis: int | None = None,
    name: str | None = None,
    seq_dim: int | None = None,
    batch_dim: int | None = None,
) -> Any:
    """Returns sequences whose first elements, as many as each length says, are reversed.

    Args:
      input: T[*shape].
      seq_lengths: i[n], a length for each sequence of the batch.
      seq_axis, seq_dim: the axis along a sequence.
      batch_axis, batch_dim: the axis of the sequences; None for 0.
      name: name of the operation.

    Raises:
      ValueError: if no axis is given for the sequences, or a length is not within them.
    """
    along = seq_axis if seq_axis is not None else seq_dim
    batch = batch_axis if batch_axis is not None else batch_dim or 0
    if along is None:
        raise ValueError("reverse_sequence needs seq_axis")
    given = {"along": along, "batch": batch, "known": _known_lengths(seq_lengths)}
    return _reversed_parts(input, seq_lengths, **given, name=name)


def searchsorted(
    sorted_sequence: Any,
    values: Any,
    side: str = "left",
    out_type: Any = jnp.int32,
    name: str | None = None,
) -> Any:
    """Returns where values belong in sorted sequences, before equal elements or behind them.

    Args:
      sorted_sequence: T[*batch, n].
      values: T[*batch, m].
      side: "left" or "right".
      out_type: dtype of the result.
      name: name of the operation.

    Returns:
      out_type[*batch, m].
    """
    given = {"side": side, "dtype": as_dtype(out_type)}
    return _searchsorted(sorted_sequence, values, **given, name=name)


def with_row(x: Any, axis: int) -> Any:
    """Returns a tensor with one slice more along an axis of unknown size, which may be empty.

    XLA cannot index an empty axis. The slice has JAX's value for an index that is out of range.

    Args:
      x: T[*shape].
      axis: the axis.

    Returns:
      T[*shape], one more along the axis unless its size is known.
    """
    if isinstance(x.shape[axis], int):
        return x
    widths = [(0, int(i == axis)) for i in builtins.range(x.ndim)]
    return jnp.pad(x, widths, constant_values=_out_of_range(x.dtype))


def _out_of_range(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.bool_):
        return True
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.nan
    least, most = limits_of(dtype)
    return least or most


def check_batches(sizes: Sequence[Any], others: Sequence[Any]) -> None:
    """Raises ValueError if two batches differ; a graph then makes unknown sizes in it equal."""
    if any(size != other for size, other in zip(sizes, others, strict=True)):
        raise ValueError(
            f"batches have to be equal, got {builtins.tuple(sizes)} and {builtins.tuple(others)}"
        )


def with_rows(x: Any, n_axes: int) -> Any:
    """Returns a tensor with a slice more along those of its first axes whose sizes are unknown."""
    for axis in builtins.range(n_axes):
        x = with_row(x, axis)
    return x


def without_rows(x: Any, sizes: Sequence[Any]) -> Any:
    """Returns a tensor whose first axes have these sizes again; see `with_rows`."""
    for axis, size in enumerate(sizes):
        if not isinstance(size, int):
            x = jax.lax.slice_in_dim(x, 0, size, axis=axis)
    return x


def _tiled(x: Any, reps: Sequence[Any]) -> Any:
    if len(reps) != jnp.ndim(x):
        raise ValueError(f"expected a multiple for each axis of {jnp.shape(x)}, got {reps}")
    return jnp.tile(x, reps)


def _padded(x: Any, pad_width: Sequence[Any], mode: str, **filling: Any) -> Any:
    if len(pad_width) != jnp.ndim(x) or any(len(pair) != 2 for pair in pad_width):
        raise ValueError(f"expected two numbers for each axis of {jnp.shape(x)}, got {pad_width}")
    return jnp.pad(x, pad_width, mode, **filling)


def _repeated(x: Any, repeats: Any, axis: int | None) -> Any:
    if not isinstance(repeats, builtins.tuple):
        return jnp.repeat(x, repeats, axis)
    numbers: Any = np.asarray(repeats) if len(repeats) != 1 else repeats[0]
    return jnp.repeat(x, numbers, axis)


def _rows(value: Any) -> list[Any]:
    """Returns the elements along the first axis, whose size is known."""
    if isinstance(value, Symbolic):
        return [value[i] for i in builtins.range(value.shape[0])]
    return list(value)


def _is_descending(direction: str) -> bool:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"expected the direction ASCENDING or DESCENDING, got {direction!r}")
    return direction == "DESCENDING"


def _selected(condition: Any, x: Any, y: Any) -> Any:
    """Selects elements; a vector of conditions selects rows of x and y."""
    rank = max(jnp.ndim(x), jnp.ndim(y))
    if jnp.ndim(condition) == 1 and rank > 1:
        condition = jnp.reshape(condition, (-1,) + (1,) * (rank - 1))
    return jnp.where(condition, x, y)


def _sliced(x: Any, begin: Sequence[Any], sizes: Sequence[Any]) -> Any:
    given = zip(x.shape, begin, sizes, strict=True)
    lengths = [
        total - first if isinstance(size, int) and size == -1 else size
        for total, first, size in given
    ]
    if not any(isinstance(first, jax.core.Tracer) for first in begin):
        for total, first, length in zip(x.shape, begin, lengths, strict=True):
            if all(isinstance(n, int) for n in (total, first, length)) and not (
                0 <= first <= first + length <= total
            ):
                raise ValueError(f"a slice of {length} from {first} is not within {x.shape}")
    return jax.lax.dynamic_slice(x, list(begin), lengths)


def _one_hots(indices: Any, on: Any, off: Any, depth: Any, axis: int, dtype: Any) -> Any:
    given = [jnp.asarray(x).dtype for x in (on, off) if x is not None]
    kind = dtype or (given[0] if given else jnp.float32)
    is_on = jax.nn.one_hot(indices, depth, axis=axis, dtype=bool)
    values = [jnp.asarray(x, kind) for x in (1 if on is None else on, 0 if off is None else off)]
    return jnp.where(is_on, *values)


def _transposed(a: Any, perm: Any, conjugate: bool) -> Any:
    moved = jnp.transpose(a, perm)
    return jnp.conj(moved) if conjugate else moved


def _known_lengths(lengths: Any) -> Sequence[int]:
    """Returns the lengths of sequences; none if only a step knows them."""
    if any(isinstance(x, Symbolic | jax.core.Tracer) for x in jax.tree.leaves(lengths)):
        return ()
    return builtins.tuple(np.asarray(lengths).tolist())


def _with_reversed_parts(x: Any, lengths: Any, along: int, batch: int, known: Sequence[int]) -> Any:
    sizes = x.shape[batch], x.shape[along]
    if isinstance(sizes[1], int) and not all(0 <= length <= sizes[1] for length in known):
        raise ValueError(f"expected lengths from 0 to {sizes[1]}, got {known}")
    moved = with_rows(jnp.moveaxis(x, (batch, along), (0, 1)), 2)
    check_batches(sizes[:1], jnp.shape(lengths))
    lengths = with_row(lengths, 0)
    steps = jnp.arange(moved.shape[1])[None]
    ends = lengths[:, None]
    order = jnp.where(steps < ends, ends - 1 - steps, steps)
    order = jnp.reshape(order, (*order.shape, *(1,) * (moved.ndim - 2)))
    reversed_ = without_rows(jnp.take_along_axis(moved, order, axis=1), sizes)
    return jnp.moveaxis(reversed_, (0, 1), (batch, along))


def _positions(sequence: Any, values: Any, side: str, dtype: Any) -> Any:
    def find(one: Any, wanted: Any) -> Any:
        return jnp.searchsorted(one, wanted, side=side)

    for _ in builtins.range(jnp.ndim(sequence) - 1):
        find = jax.vmap(find)
    return find(sequence, values).astype(dtype)


_tile = operation(_tiled, "Tile")
_pad = operation(_padded, "Pad")
_repeat = operation(_repeated, "Repeat")
_meshgrid = operation(jnp.meshgrid, "meshgrid")
_inverted = operation(
    lambda x: jnp.zeros_like(x).at[x].set(jnp.arange(x.shape[0], dtype=x.dtype)),
    "InvertPermutation",
)
_reversed_parts = operation(_with_reversed_parts, "ReverseSequence")
_searchsorted = operation(_positions, "searchsorted")
select = operation(_selected, "Select")
_dynamic_slice = operation(_sliced, "Slice")
_one_hot = operation(_one_hots, "one_hot")
_transpose = operation(_transposed, "transpose")
