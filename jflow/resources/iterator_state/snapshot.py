"""Snapshots of iterator states."""

from __future__ import annotations

from dataclasses import dataclass

from jflow.resources.iterator_state.spec import IteratorStateSpec


@dataclass(frozen=True)
class IteratorStateSnapshot:
    """The text that an iterator saved last.

    Attributes:
      spec: the definition of the iterator state.
      text: the text, UTF-8; None if nothing was saved.
    """

    spec: IteratorStateSpec
    text: bytes | None
