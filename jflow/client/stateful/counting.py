"""A counter with a limit, on an integer variable of a graph."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jflow.base.values import abstract
from jflow.client.stateful.variable import VariableOperations
from jflow.compiler.graph import Tensor, control_dependencies
from jflow.compiler.graph.calls import call


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
        counted = operations.update(_next, [operations.operand(limit, ref.dtype)], "Update")
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


def _next(value: Any, limit: Any) -> Any:
    return jnp.where(value < limit, value + 1, value)
