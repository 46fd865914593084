"""`OpenLoop`: a loop over devices whose body is open, as operations of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from jflow.base.cluster import DeviceSpec

OpT = TypeVar("OpT")
TensorT = TypeVar("TensorT")


@dataclass(eq=False)
class OpenLoop(Generic[OpT, TensorT]):
    """A loop over devices; its operations refer to it (`Operation.loop`).

    Attributes:
      op: name of its operation in the user's graph.
      line: the user's line that made it.
      trips: the number of iterations, or the largest with a predicate; at least 1.
      is_reversed: whether the number of the iteration counts down.
      window: how many iterations may be under way on a device; None for the default.
      predicate: says whether an iteration is run; None if all are.
      next: for each carry, the tensor that is its value in the next iteration.
      stacks: for each stacked array, the same array on each of the requested devices that have
        its elements.
    """

    op: str
    line: str
    trips: int
    is_reversed: bool
    window: int | None = None
    predicate: TensorT | None = None
    next: dict[OpT, TensorT] = field(default_factory=dict)
    stacks: dict[TensorT, dict[DeviceSpec, TensorT]] = field(default_factory=dict)
