"""`Charged`: a resource that keeps tensors, whose bytes are charged to an account."""

from __future__ import annotations

from jflow.state.quotas import Allowance


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
