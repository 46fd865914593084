"""Snapshots of iterator states."""

from __future__ import annotations

from typing import ClassVar

from jflow.base.packing import Limits
from jflow.state.resources.iterator_state.spec import IteratorStateSpec
from jflow.state.resources.snapshot import PlainSnapshot


class IteratorStateSnapshot(PlainSnapshot, frozen=True):
    """The text that an iterator saved last.

    Attributes:
      spec: the definition of the iterator state.
      text: the text, UTF-8; None if nothing was saved.
    """

    what = "snapshot of an iterator state"
    limits: ClassVar[Limits] = Limits(1 << 28, 1 << 28)

    spec: IteratorStateSpec
    text: bytes | None
