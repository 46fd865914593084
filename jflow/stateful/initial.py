"""Initial values of variables and their validation."""

from __future__ import annotations

from typing import Any

from jflow.graph import Graph, Symbolic, Tensor
from jflow.values import as_dtype, is_host, is_static, string


def initial_tensor(graph: Graph, value: Any, dtype: Any, name: str, validate_shape: bool) -> Tensor:
    """Returns the initial value of a variable as a tensor.

    Args:
      graph: the graph.
      value: a number, array, tensor or variable.
      dtype: the requested dtype of the variable, or None.
      name: the name of the variable.
      validate_shape: whether all sizes must be known; otherwise only the rank must be.

    Raises:
      TypeError: if the value is of strings or has a different dtype.
      ValueError: if it is None, or its shape, or rank, is unknown.
    """
    if value is None:
        raise ValueError(f"variable {name!r} needs an initial value")
    if not isinstance(value, Symbolic):
        tensor = graph.constant(value, dtype, name=f"{name}/initial_value")
    else:
        tensor = graph.as_tensor(value)
    check_initial(tensor, dtype, name)
    if tensor.shape is None or (validate_shape and not is_static(tensor.shape)):
        what = "shape" if validate_shape else "rank"
        advice = "set the sizes with jflow.ensure_shape or in the placeholder"
        if tensor.shape is None:
            advice += "; None stands for a size that is not known"
        elif validate_shape:
            advice += ", or allow them to change with validate_shape=False"
        raise ValueError(
            f"variable {name!r} needs an initial value of known {what}, got {tensor!r} (made at "
            f"{tensor.op.origin}); {advice}"
        )
    return tensor


def check_initial(value: Any, dtype: Any, name: str) -> None:
    """Raises TypeError if a value is of strings or does not have the requested dtype."""
    if is_host(value) or value.dtype is string:
        raise TypeError(
            f"variable {name!r} cannot hold strings; variables hold numbers and random keys"
        )
    if dtype is not None and value.dtype != as_dtype(dtype):
        raise TypeError(
            f"variable {name!r} is requested with dtype {as_dtype(dtype)}, but its initial value "
            f"has dtype {value.dtype}"
        )
