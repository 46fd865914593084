"""TensorFlow's functions on variables and collections of variables."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from jflow.graph import GraphKeys, Operation
from jflow.graph import get_default_graph as _default_graph
from jflow.ops.arrays import group
from jflow.ops.variable import Variable


def assign(ref: Variable, value: Any, name: str = "Assign") -> Any:
    """Sets the value of the variable `ref`; see `Variable.assign`."""
    return _variable(ref).assign(value, name)


def assign_add(ref: Variable, value: Any, name: str = "AssignAdd") -> Any:
    """Adds `value` to the variable `ref`; see `Variable.assign_add`."""
    return _variable(ref).assign_add(value, name)


def assign_sub(ref: Variable, value: Any, name: str = "AssignSub") -> Any:
    """Subtracts `value` from the variable `ref`; see `Variable.assign_sub`."""
    return _variable(ref).assign_sub(value, name)


def add_to_collection(name: Hashable, value: Any) -> None:
    """Appends a value to a collection of the default graph; see `GraphKeys`."""
    _default_graph().add_to_collection(name, value)


def add_to_collections(names: Hashable | Iterable[Hashable], value: Any) -> None:
    """Appends a value to each of some collections of the default graph, once."""
    _default_graph().add_to_collections(names, value)


def get_collection(key: Hashable, scope: str | None = None) -> list[Any]:
    """Returns a copy of a collection of the default graph; see `Graph.get_collection`."""
    return _default_graph().get_collection(key, scope)


def get_collection_ref(key: Hashable) -> list[Any]:
    """Returns the list of a collection of the default graph itself."""
    return _default_graph().get_collection_ref(key)


def global_variables(scope: str | None = None) -> list[Variable]:
    """Returns the variables of the default graph that are not local, in the order of creation.

    Args:
      scope: a regular expression; only variables are returned whose name begins with a match.
    """
    return get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def local_variables(scope: str | None = None) -> list[Variable]:
    """Returns the variables of the default graph that each worker initializes, such as counters.

    Checkpoints do not contain them. For `scope` see `global_variables`.
    """
    return get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def trainable_variables(scope: str | None = None) -> list[Variable]:
    """Returns the variables of the default graph that were created with `trainable=True`.

    For `scope` see `global_variables`.
    """
    return get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def model_variables(scope: str | None = None) -> list[Variable]:
    """Returns the variables of the default graph that a program listed as its model's.

    For `scope` see `global_variables`.
    """
    return get_collection(GraphKeys.MODEL_VARIABLES, scope)


def moving_average_variables(scope: str | None = None) -> list[Variable]:
    """Returns the variables of the default graph that have moving averages.

    For `scope` see `global_variables`.
    """
    return get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


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
