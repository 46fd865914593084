"""Counting up to a limit, past which a step fails."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jflow.graph import Tensor, control_dependencies
from jflow.graph.calls import call
from jflow.ops.variable import Variable
from jflow.values import abstract


def count_up_to(ref: Variable, limit: int, name: str = "CountUpTo") -> Tensor:
    """Adds 1 to a variable atomically, unless it has reached a limit.

    Args:
      ref: a scalar variable of integers, of graph code.
      limit: the value that it does not get past.
      name: name for the operation.

    Returns:
      The value before, i[].

    Raises:
      TypeError: if it is no such variable.
      OutOfRangeError: in the step, if it has reached the limit; it stays as it is.
    """
    _check(ref)
    # The read and the update are of one segment, and so of one critical section.
    before = ref.read_value()
    with control_dependencies([before]):
        counted = ref.update(_next, ref.operations.operand(limit, ref.dtype))
    with control_dependencies([counted]):
        op = call(
            ref.graph,
            "count_up_to",
            [before],
            [abstract((), ref.dtype)],
            name=name,
            attributes={"variable": ref.name, "limit": limit},
        )
    return op.outputs[0]


def _check(ref: Any) -> None:
    is_graphs = isinstance(ref, Variable) and not ref.is_eager
    if not (is_graphs and ref.shape == () and jnp.issubdtype(ref.dtype, jnp.integer)):
        raise TypeError(
            f"expected a scalar integer variable of graph code to count with, got {ref!r}"
        )


def _next(value: Any, limit: Any) -> Any:
    return jnp.where(value < limit, value + 1, value)
