"""A counter with a limit."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jflow.graph import Tensor, control_dependencies
from jflow.graph.calls import call
from jflow.ops.variable import Variable
from jflow.values import abstract


def count_up_to(ref: Variable, limit: int, name: str = "CountUpTo") -> Tensor:
    """Increments a variable atomically; the step fails once it has reached a limit.

    Args:
      ref: an integer scalar variable of a graph.
      limit: the largest value that the variable takes.
      name: name of the operation.

    Returns:
      The value before the increment, i[].

    Raises:
      TypeError: if `ref` is not such a variable.
      OutOfRangeError: in the step, if the variable has reached the limit; it is not changed.
    """
    _check(ref)
    # Read and update are in one segment and so in one critical section: no other step writes
    # between them.
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
