"""Jaxprs of variable updates, which are functions of the old value and operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.extend.core as jex

from jflow.base.values import refuse_host
from jflow.compiler.graph import Tensor, request
from jflow.compiler.graph.tracing import is_fixed
from jflow.plan.xla.jaxprs import shape_of


def body_of(
    fun: Callable[..., Any], old: jax.core.ShapedArray, operands: Sequence[Any]
) -> jex.ClosedJaxpr:
    """Returns the jaxpr of an update.

    Args:
      fun: computes the new value.
      old: the abstract value of the variable.
      operands: the tensors or arrays that `fun` takes after the old value.

    Raises:
      TypeError: if the function captures traced values.
    """
    shapes = tuple(map(_shape_of, operands))
    # A library function always gives the same jaxpr; a user's may depend on what changes.
    return (_known_body if is_fixed(fun) else _body)(fun, old, shapes)


def _shape_of(operand: Any) -> jax.ShapeDtypeStruct:
    if isinstance(operand, Tensor):
        refuse_host(operand, "an update of a variable")
        return shape_of(operand.aval)
    return jax.ShapeDtypeStruct(operand.shape, operand.dtype)


def _body(
    fun: Callable[..., Any], old: jax.core.ShapedArray, operands: tuple[jax.ShapeDtypeStruct, ...]
) -> jex.ClosedJaxpr:
    """Traces an update."""
    # It runs on the variable's device, regardless of the blocks around the first use.
    with request.empty_request_scope():
        body = jax.make_jaxpr(fun)(shape_of(old), *operands)
    if any(isinstance(value, jax.core.Tracer) for value in body.consts):
        raise TypeError(
            f"the update {fun!r} captures a traced value; pass it as an operand instead: "
            "update(lambda old, x: ..., x)"
        )
    return body


_known_body = lru_cache(maxsize=1024)(_body)
