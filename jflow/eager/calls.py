"""Calls on eager resources that become equations of a function that JAX traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from jflow.graph import ResourceRef, origin
from jflow.graph.primitives import host_p
from jflow.packing import pack
from jflow.values import AbstractValue, HostArray, as_array, string


class TracedCall(NamedTuple):
    """A call in a function that JAX traces."""

    outputs: tuple[Any, ...]


class TracedCalls:
    """Binds calls on a resource in the function that JAX traces.

    Args:
      ref: the resource.
      describe: its repr, for messages.
    """

    def __init__(self, ref: ResourceRef, describe: Callable[[], str]) -> None:
        self._ref = ref
        self._describe = describe

    def operand(self, value: Any, dtype: Any) -> Any:
        found = value.dtype if isinstance(value, jax.Array) else dtype
        if found != dtype:
            raise TypeError(f"{self._describe()} takes {dtype.name}, got {value!r}")
        if dtype == string:
            raise TypeError(
                f"{self._describe()} takes strings, which a function that JAX traces has not"
            )
        array = value if isinstance(value, jax.Array) else as_array(value, dtype)
        return jax.lax.stop_gradient(jax.numpy.asarray(array))

    def call(
        self,
        function: str,
        inputs: Sequence[Any],
        outputs: Sequence[AbstractValue],
        name: str,
        attributes: dict[str, Any] | None = None,
    ) -> TracedCall:
        for aval in outputs:
            if isinstance(aval, HostArray):
                raise TypeError(
                    f"{self._describe()} gives {aval.str_short()}, which a function that JAX "
                    "traces cannot have; use it in graph code or from plain Python, or give it a "
                    "shape"
                )
        values = host_p.bind(
            *inputs,
            function=function,
            attributes=pack(attributes or {}, f"arguments of {function!r}"),
            resources=(self._ref,),
            is_blocking=True,
            outputs=tuple(outputs),
            line=origin.describe(origin.user_location()),
        )
        return TracedCall(tuple(values))
