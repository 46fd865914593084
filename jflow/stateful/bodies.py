"""Jaxprs of updates: functions of the old value and operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.extend.core as jex

from jflow.graph import Tensor, request
from jflow.graph.tracing import is_fixed
from jflow.xla.jaxprs import shape_of


def body_of(
    fun: Callable[..., Any], old: jax.core.ShapedArray, operands: Sequence[Any]
) -> jex.ClosedJaxpr:
    """The program of an update.

    Args:
      fun: makes the new value.
      old: the abstract value of the variable.
      operands: tensors or arrays that `fun` takes after the old value.

    Raises:
      TypeError: if the function uses traced values from outside.
    """
    shapes = tuple(map(_shape_of, operands))
    # A library's function is the same each time; a user's may use what changes.
    return (_known_body if is_fixed(fun) else _body)(fun, old, shapes)


def _shape_of(operand: Any) -> jax.ShapeDtypeStruct:
    if isinstance(operand, Tensor):
        return shape_of(operand.aval)
    return jax.ShapeDtypeStruct(operand.shape, operand.dtype)


def _body(
    fun: Callable[..., Any], old: jax.core.ShapedArray, operands: tuple[jax.ShapeDtypeStruct, ...]
) -> jex.ClosedJaxpr:
    """The program of an update."""
    # It runs where the variable is, whatever the blocks around the first use of it ask for.
    with request.empty_request_scope():
        body = jax.make_jaxpr(fun)(shape_of(old), *operands)
    if any(isinstance(value, jax.core.Tracer) for value in body.consts):
        raise TypeError(
            f"the update {fun!r} uses a traced value from outside; pass it as an operand: "
            "update(lambda old, x: ..., x)"
        )
    return body


_known_body = lru_cache(maxsize=1024)(_body)
