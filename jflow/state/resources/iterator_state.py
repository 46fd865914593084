"""Iterator states: the saved position of an input pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from jflow.base.packing import Limits
from jflow.base.values import Array
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.attempt import Attempt
from jflow.state.resources.kernel import Kernel, query, single_attempt
from jflow.state.resources.kind import Kind
from jflow.state.resources.snapshot import PlainSnapshot, Snapshottable
from jflow.state.resources.spec import Spec
from jflow.state.resources.wait_queue import QueuedAttempt, QueuedResource


class IteratorStateSpec(Spec, frozen=True):
    """The spec of every iterator state; it has no parameters."""

    what = "iterator state"


class IteratorStateSnapshot(PlainSnapshot, frozen=True):
    """The saved text of an iterator state.

    Attributes:
      spec: the definition of the iterator state.
      text: the text, UTF-8; None if nothing was saved.
    """

    what = "snapshot of an iterator state"
    limits: ClassVar[Limits] = Limits(1 << 28, 1 << 28)

    spec: IteratorStateSpec
    text: bytes | None


class SavedIteratorState(QueuedResource[IteratorStateSnapshot]):
    """The resource that keeps the text that an iterator saved last.

    Args:
      spec: its definition.
      name: its name in messages.

    Attributes:
      text: the saved text; None if nothing was saved.
    """

    saved_as = IteratorStateSnapshot

    def __init__(self, spec: IteratorStateSpec, name: str) -> None:
        super().__init__(spec, name, SaveIteratorState)
        self.text: bytes | None = None

    def clear(self) -> None:
        self.text = None

    def save(self) -> IteratorStateSnapshot:
        return IteratorStateSnapshot(IteratorStateSpec(), self.text)

    def load(self, snapshot: IteratorStateSnapshot) -> None:
        self.text = snapshot.text


class SaveIteratorState(QueuedAttempt[SavedIteratorState]):
    """Replaces the saved text.

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


def _save(text: Array) -> Attempt:
    return SaveIteratorState(text.item())


def _load(state: SavedIteratorState) -> Array:
    """Returns the saved text as string[1], or string[0] if nothing was saved."""
    text = np.empty(0 if state.text is None else 1, object)
    text[:] = state.text
    return text


KERNELS: Mapping[str, Kernel] = {
    "iterator_state.save": single_attempt(_save),
    "iterator_state.load": query(_load),
}


def _make(spec: IteratorStateSpec, name: str, _: AllowedDirectories) -> Snapshottable:
    return SavedIteratorState(spec, name)


ITERATOR_STATE = Kind("iterator_state", IteratorStateSpec, _make, IteratorStateSnapshot, KERNELS)
