"""Shape checks at run time, for sizes that are unknown when the graph is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from jflow.base.packing import pack
from jflow.base.values import Dim, abstract, declared
from jflow.compiler.graph import Graph, Tensor, VariableRef, colocate_with, origin
from jflow.compiler.graph.calls import call
from jflow.compiler.graph.primitives import host_p


def checked(
    graph: Graph | None,
    value: Any,
    shape: Sequence[Dim],
    ref: VariableRef,
    what: str,
    like: Any = None,
    leading: int = 0,
) -> Any:
    """Returns a value whose shape is checked in the step, on the device of the variable.

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
