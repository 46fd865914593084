"""Positions: text that says how far somebody has come, kept for whoever goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jflow.resources.attributes import Attributes
from jflow.resources.line import LinedAttempt, LinedResource


@dataclass(frozen=True)
class PositionSpec:
    """What a position is made as: all are alike."""

    def check_same(self, found: PositionSpec, name: str) -> None:
        """Refuses nothing."""

    def to_attributes(self) -> dict[str, Any]:
        """This as a record of plain values."""
        return {}

    @classmethod
    def from_attributes(cls, record: object) -> PositionSpec:
        """What `to_attributes` described. Raises InvalidArgumentError if it did not."""
        Attributes(record, "position", ())
        return cls()


class Position(LinedResource):
    """Text that was saved last.

    Args:
      spec: what it is made as.
      name: what messages call it.

    Attributes:
      text: what was saved, None if nothing was.
    """

    def __init__(self, spec: PositionSpec, name: str) -> None:
        super().__init__(SavePosition)
        self.spec = spec
        self.name = name
        self.text: bytes | None = None

    def __str__(self) -> str:
        return f"position {self.name!r}"

    def clear(self) -> None:
        self.text = None


class SavePosition(LinedAttempt[Position]):
    """Keeps a text in place of the one before.

    Args:
      text: UTF-8.
    """

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self._text = text

    def advance(self, state: Position) -> bool:
        state.text = self._text
        self.succeed()
        return True
