"""Sparse tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from jflow.compiler.graph import Tensor


class SparseTensor(NamedTuple):
    """A sparse tensor in coordinate format.

    Attributes:
      indices: i64[n, rank], the positions of the elements, on the host.
      values: dtype[n], the elements.
      dense_shape: i64[rank], the shape of the dense tensor, on the host.
    """

    indices: Tensor
    values: Tensor
    dense_shape: Tensor


def refuse_sparse(values: Iterable[Any], what: object) -> None:
    """Raises TypeError if one of the values, which are to be batched, is a `SparseTensor`.

    Args:
      values: arguments of a function.
      what: the function or queue, for the message.
    """
    for value in values:
        if isinstance(value, SparseTensor):
            raise TypeError(
                f"{what} does not accept a SparseTensor, because its parts differ in size between "
                f"elements (made by operation {value.values.op.name!r} at "
                f"{value.values.op.origin}); batch the serialized Examples and parse the batch "
                "with jflow.parse_example, or read the feature as a FixedLenFeature or "
                "FixedLenSequenceFeature"
            )
