"""Operands of accesses to variables: values with a shape check in the step, bodies of updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.extend.core as jex

from jflow.base.packing import pack
from jflow.base.values import Dim, abstract, declared, refuse_host
from jflow.compiler.graph import Graph, Tensor, VariableRef, colocate_with, origin, request
from jflow.compiler.graph.calls import call
from jflow.compiler.graph.primitives import host_p
from jflow.compiler.graph.tracing import is_fixed
from jflow.plan.xla.jaxprs import shape_of


def checked(
    graph: Graph | None,
    value: Any,
    shape: Sequence[Dim],
    ref: VariableRef,
    what: str,
    like: Any = None,
    leading: int = 0,
) -> Any:
    """Returns a value whose shape the step checks, on the device of the variable.

    Args:
      graph: the graph of the value; None in a traced function.
      value: the value, of unknown sizes.
      shape: the required shape; an unknown size matches any size.
      ref: the variable that the value is for.
      what: the beginning of the message if the shape does not match, such as "cannot assign to".
      like: a value that gives the first `leading` sizes of the required shape.
      leading: the number of sizes that `like` gives.
    """
    attributes: dict[str, Any] = {"shape": declared(shape[leading:]), "what": f"{what} {ref}"}
    inputs, function = [value], "ensure_shape"
    if like is not None:
        inputs, function = [value, like], "ensure_shape_like"
        attributes["leading"] = leading
    aval = abstract(tuple(shape), value.dtype)
    if graph is not None:
        tensors: list[Tensor] = [graph.as_tensor(x) for x in inputs]
        with graph.as_default(), colocate_with(graph.handle_of(ref), ignore_existing=True):
            return call(
                graph, function, tensors, [aval], name="check_shape", attributes=attributes
            ).outputs[0]
    (same,) = host_p.bind(
        *map(jax.lax.stop_gradient, inputs),
        function=function,
        attributes=pack(attributes),
        resources=(),
        is_blocking=False,
        outputs=(aval,),
        line=origin.describe(origin.user_location()),
    )
    return same


def body_of(
    fun: Callable[..., Any], old: jax.core.ShapedArray, operands: Sequence[Any]
) -> jex.ClosedJaxpr:
    """Returns the jaxpr of an update, from a cache if `fun` is a library function.

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
    """Traces the function of an update."""
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
