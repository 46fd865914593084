"""`Charged`: a resource that keeps tensors, whose bytes are charged to an account."""

from __future__ import annotations

from jflow.state.quotas import Allowance
from jflow.state.resources.cell import Cell


class Charged:
    """Base of resources that keep tensors.

    Attributes:
      allowance: what it may keep.
      size_bytes: what it keeps.
      held_bytes: what attempts that wait have taken of it and hold.
    """

    allowance: Allowance
    size_bytes: int
    held_bytes: int = 0

    @property
    def charged_bytes(self) -> int:
        """What is charged to its account, or will be."""
        return self.size_bytes + self.held_bytes


def charged_bytes(cell: Cell) -> int:
    """Returns the bytes of the tensors that a resource keeps; 0 if it keeps none."""
    return cell.query(lambda one: one.charged_bytes if isinstance(one, Charged) else 0)
