"""A counter with a limit, as a function of a variable."""

from __future__ import annotations

from jflow.client.ops.variable import Variable
from jflow.compiler.graph import Tensor


def count_up_to(ref: Variable, limit: int, name: str = "CountUpTo") -> Tensor:
    """Increments a variable atomically; the step fails once it has reached a limit.

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
