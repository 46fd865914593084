"""Sparse tensors, and the refusal of functions that cannot take them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from jflow.graph import Tensor


class SparseTensor(NamedTuple):
    """A tensor of which only some elements are there.

    Attributes:
      indices: i64[n, rank], where they are, on the host.
      values: dtype[n], the elements.
      dense_shape: i64[rank], the shape of the whole, on the host.
    """

    indices: Tensor
    values: Tensor
    dense_shape: Tensor


def refuse_sparse(values: Iterable[Any], what: object) -> None:
    """Raises TypeError if a `SparseTensor` is among values that are stacked or cut into rows.

    Args:
      values: what is given.
      what: what it is given to, for the message.
    """
    for value in values:
        if isinstance(value, SparseTensor):
            raise TypeError(
                f"{what} cannot take a SparseTensor, whose parts differ in size from element to "
                f"element (made by operation {value.values.op.name!r} at {value.values.op.origin});"
                " batch the serialized Examples and parse the batch with jflow.parse_example, or "
                "read the feature as a FixedLenFeature or FixedLenSequenceFeature"
            )
