"""Callbacks under `jax.vmap` with `vmap_method="sequential"`: one operation for all elements.

JAX makes a scan of them, whose body is the callback alone. As any loop, it would be one program,
which a server cannot run. It becomes one callback instead, that calls the function in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jflow.compiler.graph.callbacks import is_callback
from jflow.plan.xla import internals


@dataclass(frozen=True)
class _ForEach:
    """Calls a function for each element of its arguments.

    Attributes:
      function: takes and returns arrays in a flat order.
      length: the number of elements.
      operands: for each argument of the function, the number of the argument that it comes from,
        and whether it is an element of that; or a literal.
      out_avals: the abstract values of its results.
    """

    function: Any
    length: int
    operands: tuple[tuple[int, bool] | jex.Literal, ...]
    out_avals: tuple[Any, ...]

    @property
    def callback_func(self) -> Any:
        """The user's function, for messages."""
        return getattr(self.function, "callback_func", None)

    def __call__(self, *args: Any) -> list[Any]:
        if not self.length:
            return [np.zeros((0, *aval.shape), aval.dtype) for aval in self.out_avals]
        found = [[*self.function(*self._arguments(args, i))] for i in range(self.length)]
        return [np.stack([*map(np.asarray, values)]) for values in zip(*found, strict=True)]

    def _arguments(self, args: Sequence[Any], number: int) -> list[Any]:
        return [
            jnp.asarray(operand.val, getattr(operand.aval, "dtype", None))
            if isinstance(operand, jex.Literal)
            else args[operand[0]][number]
            if operand[1]
            else args[operand[0]]
            for operand in self.operands
        ]


def as_callback(eqn: jex.JaxprEqn) -> jex.JaxprEqn | None:
    """Returns the callback that stands for a scan over a pure callback; None for any other."""
    if eqn.primitive.name != "scan":
        return None
    n_consts, n_carry = internals.scan_sizes(eqn.params)
    body: jex.ClosedJaxpr = eqn.params["jaxpr"]
    jaxpr = body.jaxpr
    if n_carry or body.consts or len(jaxpr.eqns) != 1:
        return None
    (inner,) = jaxpr.eqns
    call = as_callback(inner) or inner
    if not is_callback(call) or call.primitive.name != "pure_callback":
        return None
    if [*jaxpr.outvars] != [*call.outvars]:
        return None
    numbers = {var: i for i, var in enumerate(jaxpr.invars)}
    for_each = _ForEach(
        call.params["callback"],
        eqn.params["length"],
        tuple(
            x if isinstance(x, jex.Literal) else (numbers[x], numbers[x] >= n_consts)
            for x in call.invars
        ),
        tuple(var.aval for var in call.outvars),
    )
    whole: jex.JaxprEqn = eqn.replace(
        primitive=call.primitive, params=call.params | {"callback": for_each}
    )
    return whole
