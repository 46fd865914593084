"""`tuple` and `identity_n`: several tensors, with the same values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jflow.client.ops.arrays import graph_of, group, identity
from jflow.client.ops.slices import IndexedSlices
from jflow.compiler.graph import Operation, Symbolic, control_dependencies, name_scope


def tuple(  # noqa: A001 - TensorFlow's name
    tensors: Sequence[Any], name: str = "tuple", control_inputs: Sequence[Any] | None = None
) -> list[Any]:
    """Returns tensors that are there once all of them are computed.

    Args:
      tensors: tensors, variables, `IndexedSlices` and operations; None stays None.
      name: scope of the operations.
      control_inputs: operations and tensors that come before, too.

    Raises:
      ValueError: if there is no tensor or operation.
      TypeError: if a control input is neither an operation nor a tensor.
    """
    members = [one for one in tensors if one is not None]
    if not members:
        raise ValueError(f"'tensors' must have at least one Tensor, got {tensors!r:.80}")
    before = control_inputs or ()
    for one in before:
        if not isinstance(one, Operation | Symbolic):
            raise TypeError(
                f"'control_inputs' must only contain operations and tensors, got {one!r:.80}"
            )
    with graph_of(members).as_default(), name_scope(name):
        gate = group(*members, *before)
        with control_dependencies([gate]):
            return [None if one is None else _gated(one) for one in tensors]


def identity_n(input: Sequence[Any], name: str | None = None) -> list[Any]:  # noqa: A002
    """Returns tensors with the same values, made by operations in the current scopes."""
    return [identity(one, name or "IdentityN") for one in input]


def _gated(one: Any) -> Any:
    if isinstance(one, Operation):
        return group(one, name="control_dependency")
    if isinstance(one, IndexedSlices):
        values = identity(one.values, "control_dependency")
        return IndexedSlices(values, one.indices, one.dense_shape)
    return identity(one, "control_dependency")
