"""Operations that run on the host of a task: calls of functions that every worker knows by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jflow.base.packing import pack
from jflow.base.values import AbstractValue
from jflow.compiler.graph.primitives import ResourceRef, host_p
from jflow.compiler.graph.recorded import record

if TYPE_CHECKING:  # graphs make calls themselves
    from jflow.compiler.graph.graph import Graph, Operation, Tensor


def call(
    graph: Graph,
    function: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[AbstractValue],
    *,
    name: str,
    resources: Sequence[ResourceRef] = (),
    is_blocking: bool = False,
    attributes: dict[str, Any] | None = None,
) -> Operation:
    """Adds a call of a host function under the current scopes.

    Args:
      graph: where.
      function: its name, see `jflow.task.execution.functions`.
      inputs: tensors of that graph.
      outputs: abstract values of what it gives.
      name: name for the operation.
      resources: what it works on; it runs where the first one is.
      is_blocking: whether it can take as long as others let it wait.
      attributes: its other arguments: plain values as `pack` takes them, and NumPy scalars.

    Raises:
      TypeError: if an attribute is something else, such as a tensor.
    """
    plain_attributes = {
        key: plain(function, key, value) for key, value in (attributes or {}).items()
    }
    return graph.add(
        host_p,
        [tensor.var for tensor in inputs],
        outputs,
        name=name,
        function=function,
        attributes=pack(plain_attributes, f"arguments of {function!r}"),
        resources=tuple(resources),
        is_blocking=is_blocking,
    )


def on_any_rank(
    graph: Graph,
    fun: Callable[[Any], Any],
    tensor: Tensor,
    name: str,
    function: str,
    attributes: dict[str, Any] | None = None,
) -> Tensor:
    """Adds a JAX function of a tensor of unknown rank, with a host function as fallback.

    A step that does not know the rank calls the function of the host.

    Args:
      graph: where.
      fun: the function of JAX, of one array.
      tensor: a tensor of that graph.
      name: name for the operation.
      function, attributes: the function of the host, as for `call`.
    """
    recorded = record(fun, jax.tree.structure(((0,), {})), [tensor.aval], name)

    def fallback(here: Graph, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        avals = recorded.avals
        return call(here, function, inputs, avals, name=name, attributes=attributes).outputs

    op = graph.add_recorded([tensor.var], replace(recorded, fallback=fallback), name)
    return op.outputs[0]


def plain(function: str, name: str, value: Any) -> Any:
    """Returns an attribute with Python scalars as leaves. Raises TypeError for other leaves."""

    def leaf(item: Any) -> Any:
        item = item.item() if isinstance(item, np.generic) else item
        if not isinstance(item, str | int | float | bool):
            raise TypeError(
                f"{function} takes a {name} that is known when the graph is built, got {item!r:.80}"
            )
        return item

    return jax.tree.map(leaf, value)
