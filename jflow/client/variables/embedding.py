"""`Embedding`: a table of rows that are looked up by id."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import as_dtype, is_compatible
from jflow.client.ops import Variable
from jflow.client.ops.variable import VariableLike
from jflow.client.variables import initializers
from jflow.client.variables.lookup import COMBINERS, Combiner, embedding_lookup
from jflow.compiler.graph import Tensor


class Embedding:
    """A table of rows of features, of which a step reads and updates those that it looks up.

    In the scope of a `ParameterServerStrategy` with a partitioner the table is in shards, each of
    which makes its own first values, so it may be larger than what a task, or this process, keeps.
    The gradient of a loss that only looks rows up is rows, too: `Optimizer.minimize` and
    `compute_gradients` with `var_list=[embedding.table]` give an `IndexedSlices`, and
    `apply_gradients` changes these rows and their slots beside them, each row once.

    Args:
      num_embeddings: the number of rows.
      features: the number of elements of a row.
      name: the name of the variable.
      initializer: an initializer (`jflow.initializers`), called with the shape of the table and of
        its part; None for uniform values between -0.05 and 0.05.
      dtype: of floats.

    Attributes:
      table: T[num_embeddings, features], the variable.

    Raises:
      TypeError: if the dtype is none of floats.
      ValueError: if a number is not positive.
    """

    def __init__(
        self,
        num_embeddings: int,
        features: int,
        name: str = "embedding",
        *,
        initializer: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> None:
        if num_embeddings < 1 or features < 1:
            raise ValueError(
                "expected positive numbers of embeddings and features, got "
                f"{num_embeddings} and {features}"
            )
        if not jnp.issubdtype(as_dtype(dtype), jnp.floating):
            raise TypeError(f"expected a dtype of floats, got {as_dtype(dtype)}")
        make = initializer or initializers.RandomUniform(-0.05, 0.05)
        shape = (int(num_embeddings), int(features))

        def initial(partition_shape: Any = None, partition_offset: Any = None) -> Any:
            return make(
                shape, dtype, partition_shape=partition_shape, partition_offset=partition_offset
            )

        self._name = name
        self.table: VariableLike = Variable(initial, name=name)

    def __call__(self, ids: Any, weights: Any = None, combiner: Combiner | None = None) -> Any:
        """Looks up rows.

        Args:
          ids: integers of any shape. With a combiner, the last axis is a bag of ids, in which a
            negative id is an empty place.
          weights: with a combiner, a factor of the row of each id, of the shape of `ids`.
          combiner: None for the rows; "sum" of a bag, "mean", or "sqrtn": the sum, divided by the
            sum of the weights or the root of the sum of their squares. That of an empty bag is 0.

        Returns:
          T[*ids.shape, features], or with a combiner T[*ids.shape[:-1], features]: a tensor in
          graph code, otherwise an array. The row of an id that the table has not got is NaN.

        Raises:
          TypeError: if the ids are not integers.
          ValueError: if there is no such combiner, there are weights without one, or the shapes
            differ.
        """
        if combiner is None:
            if weights is not None:
                raise ValueError("weights need a combiner, one of " + ", ".join(COMBINERS))
            return self._rows(ids)
        if combiner not in COMBINERS:
            raise ValueError(f"expected a combiner of {COMBINERS}, got {combiner!r}")
        if weights is not None and not is_compatible(np.shape(weights), np.shape(ids)):
            raise ValueError(
                f"expected weights of the shape of the ids, {np.shape(ids)}, got "
                f"{np.shape(weights)}"
            )
        rows = self._rows(ids)
        args = (rows, ids, weights, combiner)
        return rows.graph.apply(_combined, args) if isinstance(rows, Tensor) else _combined(*args)

    def _rows(self, ids: Any) -> Any:
        # A negative index would be counted from the end, and that row would have a gradient.
        n_rows = int(self.table.shape[0])
        if isinstance(ids, Tensor):
            return embedding_lookup(self.table, ids.graph.apply(_from_zero, (ids, n_rows)))
        return embedding_lookup(self.table, _from_zero(ids, n_rows))

    def saved_state(self) -> VariableLike:
        """Returns what `jflow.checkpoint` saves: the table."""
        return self.table

    def __repr__(self) -> str:
        rows, features = self.table.shape
        return f"<jflow.nn.Embedding {self._name!r} of {rows:,} rows of {features}>"


def _from_zero(ids: Any, n_rows: int) -> Any:
    """Returns ids as i32; those that the table has not got are its number of rows."""
    is_of_jax = isinstance(ids, jax.Array)
    # Not yet as an array of JAX, which may have 32 bits only.
    at = ids if is_of_jax else np.asarray(ids)
    if not jnp.issubdtype(at.dtype, jnp.integer):
        raise TypeError(f"ids must be integers, got {at.dtype.name}")
    if at.dtype.itemsize < 4:
        at = at.astype(np.int32)
    where: Any = jnp.where if is_of_jax else np.where
    return jnp.asarray(where((at < 0) | (at >= n_rows), n_rows, at).astype(np.int32))


def _combined(rows: Any, ids: Any, weights: Any, combiner: Combiner) -> Any:
    """Returns the rows of each bag combined; an empty place has no gradient."""
    is_there = jnp.asarray(ids) >= 0
    wide = jnp.promote_types(rows.dtype, jnp.float32)
    factors = jnp.where(is_there, 1 if weights is None else jnp.asarray(weights), 0).astype(wide)
    own = jnp.where(is_there[..., None], rows, 0) * factors[..., None]
    total = own.sum(-2)
    if combiner == "mean":
        size = factors.sum(-1)
        total = total / jnp.where(size == 0, 1, size)[..., None]
    elif combiner == "sqrtn":
        square = (factors**2).sum(-1)
        total = total / jnp.sqrt(jnp.where(square == 0, 1, square))[..., None]
    return total.astype(rows.dtype)
