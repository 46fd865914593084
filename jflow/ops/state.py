"""TensorFlow's functions on variables and collections of variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jflow.graph import Operation
from jflow.graph import get_default_graph as _default_graph
from jflow.ops.arrays import group
from jflow.ops.variable import GLOBAL_VARIABLES, LOCAL_VARIABLES, TRAINABLE_VARIABLES, Variable


def assign(ref: Variable, value: Any, name: str = "Assign") -> Any:
    """Sets the value of the variable `ref`; see `Variable.assign`."""
    return _variable(ref).assign(value, name)


def assign_add(ref: Variable, value: Any, name: str = "AssignAdd") -> Any:
    """Adds `value` to the variable `ref`; see `Variable.assign_add`."""
    return _variable(ref).assign_add(value, name)


def assign_sub(ref: Variable, value: Any, name: str = "AssignSub") -> Any:
    """Subtracts `value` from the variable `ref`; see `Variable.assign_sub`."""
    return _variable(ref).assign_sub(value, name)


def global_variables() -> list[Variable]:
    """Returns the variables of the default graph that are not local, in the order of creation."""
    return _default_graph().get_collection(GLOBAL_VARIABLES)


def local_variables() -> list[Variable]:
    """Returns the variables of the default graph that each worker initializes, such as counters."""
    return _default_graph().get_collection(LOCAL_VARIABLES)


def trainable_variables() -> list[Variable]:
    """Returns the variables of the default graph that were created with `trainable=True`."""
    return _default_graph().get_collection(TRAINABLE_VARIABLES)


def variables_initializer(var_list: Iterable[Variable], name: str = "init") -> Operation:
    """Returns an operation that initializes variables.

    Args:
      var_list: graph variables.
      name: name of the operation.
    """
    return group(*(variable.initializer for variable in var_list), name=name)


def global_variables_initializer() -> Operation:
    """Returns an operation that initializes the global variables of the default graph so far."""
    return variables_initializer(global_variables())


def local_variables_initializer() -> Operation:
    """Returns an operation that initializes the local variables of the default graph so far."""
    return variables_initializer(local_variables(), "init_local")


def _variable(ref: Any) -> Variable:
    if not isinstance(ref, Variable):
        raise TypeError(f"expected a variable to assign to, got {ref!r}")
    return ref
