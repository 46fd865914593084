"""TensorFlow's functions on variables and collections, for the default graph."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from jflow.client.ops.arrays import group
from jflow.client.ops.in_place import check_flag
from jflow.client.ops.variable import Variable, read
from jflow.compiler.graph import GraphKeys, Operation, Tensor
from jflow.compiler.graph import get_default_graph as _default_graph


def assign(
    ref: Variable,
    value: Any,
    validate_shape: bool | None = None,
    use_locking: bool | None = None,
    name: str = "Assign",
) -> Any:
    """Sets the value of the variable `ref`.

    Args:
      ref: the variable.
      value: dtype[*shape], an array, tensor or variable.
      validate_shape: of a variable that was made with `validate_shape=False`: whether the value
        must have the sizes that the variable has in the step. False and None allow others. All
        other variables keep their shape.
      use_locking: without effect: updates are always atomic.
      name: name of the operation.

    Returns, and raises, as `Variable.assign`.
    """
    variable = _variable(ref)
    check_flag("validate_shape", validate_shape)
    operations = variable.operations
    if validate_shape and operations.is_varying:
        value = operations.of_current_shape(read(value))
    try:
        return variable.assign(value, use_locking, name)
    except ValueError as error:
        if validate_shape is False and not operations.is_varying:
            raise ValueError(
                f"{error}; only a variable that was made with validate_shape=False may change its "
                "sizes"
            ) from error
        raise


def assign_add(
    ref: Variable, value: Any, use_locking: bool | None = None, name: str = "AssignAdd"
) -> Any:
    """Adds `value` to the variable `ref`; see `Variable.assign_add`."""
    return _variable(ref).assign_add(value, use_locking, name)


def assign_sub(
    ref: Variable, value: Any, use_locking: bool | None = None, name: str = "AssignSub"
) -> Any:
    """Subtracts `value` from the variable `ref`; see `Variable.assign_sub`."""
    return _variable(ref).assign_sub(value, use_locking, name)


def count_up_to(ref: Variable, limit: int, name: str = "CountUpTo") -> Tensor:
    """Increments a variable atomically; the step fails once the variable has reached `limit`.

    Args:
      ref: an integer scalar variable of a graph.
      limit: the largest value that the variable takes.
      name: name of the operation.

    Returns:
      The value before the increment, i[].

    Raises:
      TypeError: if `ref` is not such a variable.
      OutOfRangeError: in the step, if the variable has reached the limit; it is not changed.
    """
    if not isinstance(ref, Variable):
        raise TypeError(f"expected a scalar integer variable to count with, got {ref!r}")
    return ref.count_up_to(limit, name)


def add_to_collection(name: Hashable, value: Any) -> None:
    """Appends a value to a collection of the default graph; see `GraphKeys`."""
    _default_graph().add_to_collection(name, value)


def add_to_collections(names: Hashable | Iterable[Hashable], value: Any) -> None:
    """Appends a value to several collections of the default graph, once to each."""
    _default_graph().add_to_collections(names, value)


def get_collection(key: Hashable, scope: str | None = None) -> list[Any]:
    """Returns a copy of a collection of the default graph; see `Graph.get_collection`."""
    return _default_graph().get_collection(key, scope)


def get_collection_ref(key: Hashable) -> list[Any]:
    """Returns a collection of the default graph itself, not a copy."""
    return _default_graph().get_collection_ref(key)


def global_variables(scope: str | None = None) -> list[Variable]:
    """Returns the variables of the default graph that are not local, in the order of creation.

    Args:
      scope: a regular expression; only variables are returned whose name begins with a match.
    """
    return get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def local_variables(scope: str | None = None) -> list[Variable]:
    """Returns the local variables of the default graph, which each worker initializes.

    Checkpoints do not contain them. For `scope` see `global_variables`.
    """
    return get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def trainable_variables(scope: str | None = None) -> list[Variable]:
    """Returns the variables of the default graph that were created with `trainable=True`.

    For `scope` see `global_variables`.
    """
    return get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def model_variables(scope: str | None = None) -> list[Variable]:
    """Returns the variables of the default graph in the collection MODEL_VARIABLES.

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
    """Returns an operation that initializes the global variables made so far in the graph."""
    return variables_initializer(global_variables())


def local_variables_initializer() -> Operation:
    """Returns an operation that initializes the local variables made so far in the graph."""
    return variables_initializer(local_variables(), "init_local")


def _variable(ref: Any) -> Variable:
    if not isinstance(ref, Variable):
        raise TypeError(f"expected a variable to assign to, got {ref!r}")
    return ref
