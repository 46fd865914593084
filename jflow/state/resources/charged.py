"""`Charged`: a resource that keeps tensors, whose bytes are charged to an account."""

from __future__ import annotations

from jflow.state.quotas import Allowance


class Charged:
    """Base of resources that keep tensors.

    Attributes:
      allowance: what it may keep.
      size_bytes: what it keeps.
    """

    allowance: Allowance
    size_bytes: int
