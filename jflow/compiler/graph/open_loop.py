"""`OpenLoop`: a loop over devices, or with effects, whose body is open: operations of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jflow.base.cluster import DeviceSpec

if TYPE_CHECKING:  # an operation refers to its loop
    from jflow.compiler.graph.graph import Operation, Tensor


@dataclass(eq=False)
class OpenLoop:
    """A loop over devices; its operations refer to it (`Operation.loop`).

    Attributes:
      op: name of its operation in the user's graph.
      line: the user's line that made it.
      trips: the number of iterations, or the largest with a predicate; at least 1.
      is_reversed: whether the number of the iteration counts down.
      parent: the open loop whose body it is in, if any.
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
    parent: OpenLoop | None = None
    window: int | None = None
    predicate: Tensor | None = None
    next: dict[Operation, Tensor] = field(default_factory=dict)
    stacks: dict[Tensor, dict[DeviceSpec, Tensor]] = field(default_factory=dict)

    def is_in(self, other: OpenLoop) -> bool:
        """Whether it is another loop, or inside of it."""
        loop: OpenLoop | None = self
        while loop is not None and loop is not other:
            loop = loop.parent
        return loop is other

    def below(self, level: OpenLoop | None) -> OpenLoop | None:
        """Returns the loop of a body that it is, or is inside of; None if the body is its own.

        Args:
          level: the loop of the body; None for the step.
        """
        loop = self
        if loop is level:
            return None
        while loop.parent is not level:
            assert loop.parent is not None, "a loop is not inside of the other one"
            loop = loop.parent
        return loop
