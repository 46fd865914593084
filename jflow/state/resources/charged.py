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


def charged_bytes(cell: Cell) -> int:
    """Returns the bytes of the tensors that a resource keeps; 0 if it keeps none."""

    def size(resource: object) -> int:
        if not isinstance(resource, Charged):
            return 0
        return resource.size_bytes + resource.held_bytes

    return cell.query(size)
