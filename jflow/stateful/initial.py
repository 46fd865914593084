"""Initial values of variables and their validation."""

from __future__ import annotations

from typing import Any

from jflow.graph import Graph, Symbolic, Tensor
from jflow.values import as_dtype, is_host, is_static, string


def initial_tensor(graph: Graph, value: Any, dtype: Any, name: str, validate_shape: bool) -> Tensor:
    """The initial value of a variable in a graph.

    Args:
      graph: where.
      value: a number, array, tensor or variable.
      dtype: what the variable is asked for as, or None.
      name: of the variable.
      validate_shape: whether all sizes must be known; if not, the rank must.

    Raises:
      TypeError: if it holds strings, or is of another dtype.
      ValueError: if there is none, or its shape, or rank, is not known.
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
        raise ValueError(
            f"variable {name!r} needs an initial value of known {what}, got {tensor!r} (made at "
            f"{tensor.op.origin}); give the sizes with jflow.ensure_shape or to the placeholder, "
            "or have a variable whose sizes may change with validate_shape=False"
        )
    return tensor


def check_initial(value: Any, dtype: Any, name: str) -> None:
    """Raises TypeError if a value holds strings or has another dtype than is asked for."""
    if is_host(value) or value.dtype is string:
        raise TypeError(f"variable {name!r} cannot hold strings, only what XLA computes with")
    if dtype is not None and value.dtype != as_dtype(dtype):
        raise TypeError(
            f"variable {name!r} is asked for as {as_dtype(dtype)}, "
            f"its initial value has dtype {value.dtype}"
        )
