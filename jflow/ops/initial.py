"""The initial values of variables, and what is refused as one."""

from __future__ import annotations

from typing import Any, NoReturn

from jflow.graph import Graph, Symbolic, Tensor, as_dtype, is_host, string
from jflow.graph.dims import is_static

_CURE = (
    "give the initial value its sizes (jflow.ensure_shape, or the shape of the placeholder), or "
    "keep values whose size changes in a queue"
)


def initial_tensor(graph: Graph, value: Any, dtype: Any, name: str) -> Tensor:
    """The initial value of a variable in a graph.

    Args:
      graph: where.
      value: a number, array, tensor or variable.
      dtype: what the variable is asked for as, or None.
      name: of the variable.

    Raises:
      TypeError: if it holds strings, or is of another dtype.
      ValueError: if there is none, or its shape is not known.
    """
    if value is None:
        raise ValueError(f"variable {name!r} needs an initial value")
    if not isinstance(value, Symbolic):
        tensor = graph.constant(value, dtype, name=f"{name}/initial_value")
    else:
        tensor = graph.as_tensor(value)
    check_initial(tensor, dtype, name)
    if not is_static(tensor.shape):
        raise ValueError(
            f"variable {name!r} needs an initial value of known shape, got {tensor!r} (made at "
            f"{tensor.op.origin}); {_CURE}"
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


def refuse_varying(name: str) -> NoReturn:
    """Raises ValueError because a variable is asked for without a fixed shape."""
    raise ValueError(
        f"variable {name!r} cannot have validate_shape=False: the shape of a variable never "
        f"changes, because programs are compiled for it; {_CURE}"
    )
