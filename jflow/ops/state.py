"""Functions of variables, as graph code spells them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jflow.graph import Operation
from jflow.graph import get_default_graph as _default_graph
from jflow.ops.arrays import group
from jflow.ops.variable import GLOBAL_VARIABLES, LOCAL_VARIABLES, TRAINABLE_VARIABLES, Variable


def assign(ref: Variable, value: Any, name: str = "Assign") -> Any:
    """Sets a variable; see `Variable.assign`."""
    return _variable(ref).assign(value, name)


def assign_add(ref: Variable, value: Any, name: str = "AssignAdd") -> Any:
    """Adds to a variable; see `Variable.assign_add`."""
    return _variable(ref).assign_add(value, name)


def assign_sub(ref: Variable, value: Any, name: str = "AssignSub") -> Any:
    """Subtracts from a variable; see `Variable.assign_sub`."""
    return _variable(ref).assign_sub(value, name)


def global_variables() -> list[Variable]:
    """The variables of the default graph but the local ones, in the order they were made."""
    return _default_graph().get_collection(GLOBAL_VARIABLES)


def local_variables() -> list[Variable]:
    """The variables of the default graph that each worker initializes anew, such as counters."""
    return _default_graph().get_collection(LOCAL_VARIABLES)


def trainable_variables() -> list[Variable]:
    """The variables of the default graph that were made with `trainable=True`."""
    return _default_graph().get_collection(TRAINABLE_VARIABLES)


def variables_initializer(var_list: Iterable[Variable], name: str = "init") -> Operation:
    """An operation that initializes the given variables."""
    return group(*(variable.initializer for variable in var_list), name=name)


def global_variables_initializer() -> Operation:
    """An operation that initializes the global variables made so far in the default graph."""
    return variables_initializer(global_variables())


def local_variables_initializer() -> Operation:
    """An operation that initializes the local variables made so far in the default graph."""
    return variables_initializer(local_variables(), "init_local")


def _variable(ref: Any) -> Variable:
    if not isinstance(ref, Variable):
        raise TypeError(f"expected a variable to assign to, got {ref!r}")
    return ref
