"""Operations on eager resources inside functions that JAX traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from jflow.base.packing import pack
from jflow.base.values import AbstractValue, HostArray, as_array, string
from jflow.compiler.graph import ResourceRef, origin
from jflow.compiler.graph.primitives import host_p


class TracedCall(NamedTuple):
    """An operation that was bound as an equation."""

    outputs: tuple[Any, ...]


class TracedCalls:
    """Binds operations on a resource as equations of the function that JAX traces.

    Args:
      ref: the resource.
      describe: returns the repr of the resource, for messages.
    """

    def __init__(self, ref: ResourceRef, describe: Callable[[], str]) -> None:
        self._ref = ref
        self._describe = describe

    def operand(self, value: Any, dtype: Any) -> Any:
        actual = value.dtype if isinstance(value, jax.Array) else dtype
        if actual != dtype:
            raise TypeError(f"{self._describe()} requires {dtype.name}, got {value!r:.80}")
        if dtype == string:
            raise TypeError(
                f"{self._describe()} requires strings, which JAX cannot trace; use it in graph "
                "code or from plain Python"
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
                    f"{self._describe()} returns {aval.str_short()}, which JAX cannot trace; use "
                    "it in graph code or from plain Python, or give it a shape"
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
