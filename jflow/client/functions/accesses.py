"""Functions that access variables, each where it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jflow.base.cluster import DeviceSpec
from jflow.client.functions.concrete import Concrete
from jflow.compiler.graph import VariableRef
from jflow.compiler.graph.device_blocks import device_scope
from jflow.compiler.graph.primitives import ACCESSES
from jflow.compiler.graph.request import empty_request_scope


def accessing(
    refs: Sequence[VariableRef], access: Callable[..., Any]
) -> Callable[..., tuple[Any, ...]]:
    """Returns a function that accesses variables.

    Args:
      refs: the variables.
      access: called with each variable, and the argument of that position if there are any; returns
        a result or None.
    """

    def accessed(*args: Any) -> tuple[Any, ...]:
        results = []
        for i, ref in enumerate(refs):
            with empty_request_scope(), device_scope(ref.spec):
                results.append(access(ref, *args[i : i + 1]))
        return tuple(result for result in results if result is not None)

    return accessed


def accessed_at(concrete: Concrete, refs: Sequence[VariableRef]) -> list[VariableRef]:
    """Returns variables with the containers and devices at which a function accesses them."""
    devices = {
        op.eqn.params["variable"]: device
        for op, device in concrete.placement().items()
        if op.eqn.primitive in ACCESSES
    }
    placed = []
    for ref in refs:
        device = devices[ref]
        container = "" if ref.container == device.task.job else ref.container
        placed.append(replace(ref, container=container, spec=DeviceSpec.parse(str(device))))
    return placed
