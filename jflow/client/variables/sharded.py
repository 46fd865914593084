"""`ShardedVariable`: one eager variable whose rows are divided among variables, its shards."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import SaveSliceInfo
from jflow.client.ops import Variable
from jflow.client.ops.in_place import check_flag
from jflow.client.ops.variable import VariableLike, on_device_of, read, sparse_delta
from jflow.client.stateful.updates import ROWS_IN_RANGE, report_indices
from jflow.client.variables.partitioners import split
from jflow.client.variables.parts import InParts
from jflow.compiler.graph import Tensor
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.members import visible
from jflow.compiler.graph.primitives import check_p
from jflow.plan.xla import internals


class ShardedVariable(InParts, VariableLike):
    """An eager variable whose rows are divided among several variables, its shards.

    `jflow.Variable` makes one in the scope of a `ParameterServerStrategy` with a partitioner. It is
    used like a variable: as an array it is all of its rows, and updates reach each shard where it
    is. In a `jflow.function`, `embedding_lookup`, and indexing by an integer or slice, move only
    rows, and scatter updates go to all shards, each of which applies those to its own rows. A
    checkpoint keeps it as one value, which variables with other shards, or with none, can restore.

    Args:
      variables: the shards in the order of their rows: eager variables of one dtype whose shapes
        differ in the first dimension at most.
      name: its name; None for what comes before "/part_0" in the name of the first shard.

    Raises:
      TypeError: if a shard is not an eager variable.
      ValueError: if there is none, or dtypes or shapes do not agree.
    """

    _called = "shards"

    def __init__(self, variables: Sequence[Variable], name: str | None = None) -> None:
        self._parts = list(variables)
        _check_shards(self._parts)
        first = self._parts[0]
        self._name = first.operations.ref.name.removesuffix("/part_0") if name is None else name
        self._ends = [0, *accumulate(each.shape[0] for each in self._parts)]
        self._shape = (self._ends[-1], *map(int, first.shape[1:]))
        self.trainable = first.trainable
        self.constraint = first.constraint
        for start, shard in zip(self._ends, self._parts, strict=False):
            offset = (start, *(0 for _ in first.shape[1:]))
            own = tuple(map(int, shard.shape))
            shard.save_slice_info = SaveSliceInfo(self._name, self._shape, offset, own)

    # What it is -------------------------------------------------------------------------------

    @property
    def variables(self) -> list[Variable]:
        """The shards in row order."""
        return list(self._parts)

    @property
    def is_eager(self) -> bool:
        """Always True: the variable has a value outside of sessions."""
        return True

    def __dir__(self) -> list[str]:
        return visible(super().__dir__(), "graph_element", "to_tensor")

    # Reading ----------------------------------------------------------------------------------

    def value(self) -> Any:
        """Returns all rows, dtype[*shape], as one array."""
        return jnp.concatenate([shard.value() for shard in self._parts])

    def read_value(self) -> Any:
        """Returns all rows, like `value`."""
        return self.value()

    def numpy(self) -> np.ndarray[Any, Any]:
        """Returns all rows as a NumPy array."""
        return np.concatenate([shard.numpy() for shard in self._parts])

    def to_tensor(self) -> Tensor:
        parts = [shard.to_tensor() for shard in self._parts]
        whole: Tensor = _default_graph().apply(jnp.concatenate, (parts,), name="concat")
        return whole

    def _value_for(self, use: str) -> Any:
        return self.numpy()

    @property
    def __jax_array__(self) -> Callable[[], Any]:
        if internals.asker() is not internals.Asker.JIT:
            return self.value
        raise ValueError(
            f"JAX cannot trace {self!r} directly; pass its value(), or use the function of the "
            "same name in jflow.numpy, jflow.nn, jflow.lax or jflow.random"
        )

    def __getitem__(self, index: Any) -> Any:
        """Returns `value()[index]`; an integer or slice of the first axis reads only its shards.

        Raises:
          IndexError: if an integer is out of range.
        """
        first, *rest = index if isinstance(index, tuple) and index else (index,)
        if isinstance(first, slice):
            return self._rows(first, tuple(rest))
        if isinstance(first, int | np.integer) and not isinstance(first, bool):
            return self._row(operator.index(first), tuple(rest))
        return super().__getitem__(index)

    def _row(self, number: int, rest: tuple[Any, ...]) -> Any:
        n_rows = self._shape[0]
        if not -n_rows <= number < n_rows:
            raise IndexError(f"row {number} of {self!r} is out of range, which has {n_rows} rows")
        number %= n_rows
        which = next(i for i, end in enumerate(self._ends[1:]) if number < end)
        shard = self._parts[which]
        with on_device_of(shard):
            return shard.value()[(number - self._ends[which], *rest)]

    def _rows(self, wanted: slice, rest: tuple[Any, ...]) -> Any:
        start, stop, step = wanted.indices(self._shape[0])
        if step < 0:
            return self.value()[(wanted, *rest)]
        pieces = []
        for (begin, end), shard in zip(pairwise(self._ends), self._parts, strict=True):
            # The first row of the slice that is in this shard, counted from the shard's first row.
            at = start - begin if start >= begin else (start - begin) % step
            last = min(stop, end) - begin
            if at < last:
                with on_device_of(shard):
                    pieces.append(shard.value()[(slice(at, last, step), *rest)])
        if not pieces:
            return self._parts[0].value()[(slice(0, 0), *rest)]
        return pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces)

    # Writing ----------------------------------------------------------------------------------

    def assign(
        self, value: Any, use_locking: bool | None = None, name: str = "Assign"
    ) -> ShardedVariable:
        """Sets the value: assigns to each shard its rows.

        Args:
          value: dtype[*shape], an array; or a sharded variable of the same shards, which is then
            not concatenated.
          use_locking, name: as for `Variable.assign`.

        Returns:
          This variable.

        Raises:
          TypeError, ValueError: as `Variable.assign`.
        """
        check_flag("use_locking", use_locking)
        return self._each(Variable.assign, self._pieces(value, is_whole=True), name)

    def assign_add(
        self, delta: Any, use_locking: bool | None = None, name: str = "AssignAdd"
    ) -> ShardedVariable:
        """Adds `delta`, which broadcasts to the shape; atomic for each shard. See `assign`."""
        check_flag("use_locking", use_locking)
        return self._each(Variable.assign_add, self._pieces(delta), name)

    def assign_sub(
        self, delta: Any, use_locking: bool | None = None, name: str = "AssignSub"
    ) -> ShardedVariable:
        """Subtracts `delta`, which broadcasts to the shape; atomic for each shard. See `assign`."""
        check_flag("use_locking", use_locking)
        return self._each(Variable.assign_sub, self._pieces(delta), name)

    def _apply(self, fun: Callable[..., Any], *args: Any) -> Any:
        graph = self._parts[0].operations.graph_of(args)
        return graph.apply(fun, args) if graph else fun(*map(read, args))

    def _each(
        self, method: Callable[..., Any], pieces: Sequence[Any], name: str
    ) -> ShardedVariable:
        for shard, piece in zip(self._parts, pieces, strict=True):
            method(shard, piece, name=name)
        return self

    def _pieces(self, value: Any, is_whole: bool = False) -> list[Any]:
        """Splits a value of the full shape, or broadcastable to it, into one piece a shard."""
        if isinstance(value, ShardedVariable) and value._ends == self._ends:
            return [shard.value() for shard in value]
        value = read(value)
        if not isinstance(value, jax.Array):
            value = np.asarray(value, None if hasattr(value, "dtype") else self.dtype)
        fits = _broadcasts(value.shape, self._shape)
        if value.shape != self._shape if is_whole else not fits:
            raise ValueError(
                f"a value of shape {value.shape} does not fit {self!r} of shape {self._shape}"
            )
        if value.ndim < self.ndim or value.shape[0] == 1 != self._shape[0]:
            return [value] * len(self)
        return split(value, [shard.shape[0] for shard in self])

    def _update_rows(self, method: str, indices: Any, updates: Any, name: str) -> ShardedVariable:
        if updates is None:
            indices, updates = sparse_delta(indices)
        ids = jnp.asarray(read(indices))
        if not jnp.issubdtype(ids.dtype, jnp.integer):
            raise TypeError(f"indices into {self!r} must be integers, got {ids.dtype.name}")
        updates_shape = (*ids.shape, *self._shape[1:])
        values = jnp.asarray(read(updates))
        if not _broadcasts(values.shape, updates_shape):
            raise ValueError(
                f"indices of shape {ids.shape} into {self!r} need updates of shape "
                f"{updates_shape}, got {values.shape}"
            )
        if not ids.size:
            return self
        values = values.astype(self.dtype) if values.weak_type else values
        self._check_range(ids)
        for (start, end), shard in zip(pairwise(self._ends), self._parts, strict=True):
            own = _local_ids(ids, start, end, self._shape[0])
            shard.update(ROWS_IN_RANGE[method], own, values, name=name)
        return self

    def _check_range(self, ids: jax.Array) -> None:
        """Fails the step if an index is out of range; then no shard is written."""
        operations = self._parts[0].operations
        operations.bind(check_p, (report_indices(ids, self._shape[:1]),), line=repr(self))


def _check_shards(variables: Sequence[Any]) -> None:
    if not variables:
        raise ValueError("expected at least one shard, got none")
    first = variables[0]
    for shard in variables:
        if not isinstance(shard, Variable) or not shard.is_eager:
            raise TypeError(f"expected eager variables as shards, got {shard!r:.80}")
        if shard.dtype != first.dtype:
            raise ValueError(f"shards have one dtype, got {first.dtype.name}, {shard.dtype.name}")
        if not shard.shape or shard.shape[1:] != first.shape[1:]:
            raise ValueError(
                f"shards differ in the first dimension only, got the shapes {first.shape} and "
                f"{shard.shape}"
            )


def _broadcasts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, wanted) == wanted
    except ValueError:
        return False


def _local_ids(ids: jax.Array, start: int, end: int, n_rows: int) -> jax.Array:
    """Converts row ids to a shard's local ones; ids outside of the shard become its number of rows.

    An id that is out of range makes all of them name none, so that nothing is written.
    """
    is_valid = jnp.all((ids >= 0) & (ids < n_rows))
    is_own = (ids >= start) & (ids < end) & is_valid
    return jnp.where(is_own, ids - start, end - start)
