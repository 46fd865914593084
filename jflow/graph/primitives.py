"""The primitives that JAX does not have: where values enter a graph and where state is.

An operation of a graph is a JAX equation. These are the equations that XLA never sees: the stages
below replace each of them by an argument or a result of the program around it.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.extend.core as jex

from jflow.graph.dtypes import Dtype
from jflow.graph.host import HostArray


@dataclass(frozen=True)
class VariableRef:
    """A variable as equations name it.

    Attributes:
      name: its name inside the container, and of the operation that says where it lives.
      container: the container that holds it, "" for the default one.
      shape, dtype: of its value.
    """

    name: str
    container: str
    shape: tuple[int, ...]
    dtype: Dtype

    def __str__(self) -> str:
        return f"variable {self.name!r} (container {self.container!r})"


@dataclass(frozen=True)
class StateEffect(jex.Effect):
    """Marks an equation that reads or writes state outside of the graph."""


STATE = StateEffect()

placeholder_p = jex.Primitive("placeholder")
"""() → value: must be fed."""

constant_p = jex.Primitive("constant")
"""() → value; param `value`: the ndarray that carries it."""

host_p = jex.Primitive("host")
"""*values → value, on the host; param `function`: name of a function that the worker knows."""

group_p = jex.Primitive("group")
"""() → (): has control inputs only."""
group_p.multiple_results = True

variable_p = jex.Primitive("variable")
"""() → (). Its name is the variable's, its device is where the variable lives."""
variable_p.multiple_results = True

read_p = jex.Primitive("read")
"""() → value; param `variable`."""

assign_p = jex.Primitive("assign")
"""value → value; param `variable`. Also initializes it."""

update_p = jex.Primitive("update")
"""*operands → new value; params `variable`, `body`: ClosedJaxpr of (old, *operands) → new."""

ACCESSES = frozenset({read_p, assign_p, update_p})
"""The primitives that need a variable's value to be where they run."""

SOURCES = frozenset({placeholder_p, constant_p, host_p, read_p, assign_p, update_p})
"""The primitives through which no gradient flows."""


def is_on_host(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation is for the task itself to compute, not for XLA."""
    return eqn.primitive is host_p or any(isinstance(x.aval, HostArray) for x in eqn.outvars)
