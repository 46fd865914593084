"""The saved state of an iterator, as text."""

from __future__ import annotations

from jflow.state.resources.iterator_state.snapshot import IteratorStateSnapshot
from jflow.state.resources.iterator_state.spec import IteratorStateSpec
from jflow.state.resources.wait_queue import QueuedAttempt, QueuedResource


class SavedIteratorState(QueuedResource[IteratorStateSnapshot]):
    """The text that was saved last.

    Args:
      spec: its definition.
      name: its name in messages.

    Attributes:
      text: the saved text; None if nothing was saved.
    """

    saved_as = IteratorStateSnapshot

    def __init__(self, spec: IteratorStateSpec, name: str) -> None:
        super().__init__(SaveIteratorState)
        self.spec = spec
        self.name = name
        self.text: bytes | None = None

    def __str__(self) -> str:
        return f"iterator state {self.name!r}"

    def clear(self) -> None:
        self.text = None

    def save(self) -> IteratorStateSnapshot:
        return IteratorStateSnapshot(IteratorStateSpec(), self.text)

    def load(self, snapshot: IteratorStateSnapshot) -> None:
        self.text = snapshot.text


class SaveIteratorState(QueuedAttempt[SavedIteratorState]):
    """Replaces the text.

    Args:
      text: UTF-8.
    """

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self._text = text

    def advance(self, state: SavedIteratorState) -> bool:
        state.text = self._text
        self.succeed()
        return True
