"""Shape checks that only a step can make, because sizes are unknown before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from jflow.graph import Graph, Tensor, VariableRef, colocate_with, origin
from jflow.graph.calls import call
from jflow.graph.primitives import host_p
from jflow.packing import pack
from jflow.values import Dim, abstract, declared


def checked(
    graph: Graph | None,
    value: Any,
    shape: Sequence[Dim],
    ref: VariableRef,
    what: str,
    like: Any = None,
    leading: int = 0,
) -> Any:
    """The same value, with a check of its shape in the step, on the device of the variable.

    Args:
      graph: the graph of the value; None if JAX traces a function.
      value: of unknown sizes.
      shape: the required shape; a size that is not known matches any.
      ref: the variable that it is for.
      what: what is refused, for the message of the InvalidArgumentError.
      like: a value whose first dimensions have these `leading` sizes.
      leading: how many dimensions of `like` count.
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
