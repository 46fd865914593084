"""Positions in containers: how far a pipeline has come, for the program that goes on with it."""

from __future__ import annotations

from typing import Any

from jflow.graph import Operation, Tensor
from jflow.graph.primitives import placeholder_p
from jflow.ops.live_steps import LiveSteps
from jflow.ops.resource import Handle
from jflow.resources import PositionSpec
from jflow.values import abstract, as_array, string, unknown_dim


class Position(Handle):
    """A text in a container, made inside `jflow.connect`.

    It keeps the position of an iterator, `dataset.iterator(position=jflow.Position("train"))`: a
    program that is started again goes on where the one before saved it.

    Args:
      shared_name: its name in the container.
      name: name of the operation that stands for it.

    Raises:
      RuntimeError: outside of `jflow.connect`.
    """

    def __init__(self, shared_name: str, name: str = "position") -> None:
        super().__init__("position", PositionSpec().to_attributes(), shared_name, name)
        if not self.is_live:
            raise RuntimeError(
                "a position is for plain Python: make it inside `with jflow.connect(target):`"
            )
        self._live = LiveSteps(self._owner, self._graph)

    def load(self) -> str | None:
        """The text that was saved last, None if none was."""
        (found,) = self._live.run("load", self._loading, ())
        return found[0].decode() if len(found) else None

    def save(self, text: str) -> None:
        """Keeps a text in place of the one before."""
        self._live.run("save", self._saving, [as_array(text, string)])

    def _loading(self) -> tuple[Operation, list[Tensor]]:
        aval = abstract((unknown_dim(),), string)
        return self._call("position.load", [], [aval], "load", may_wait=False), []

    def _saving(self) -> tuple[Operation, list[Tensor]]:
        text: Any = self._graph.add(placeholder_p, [], [abstract((), string)], name="text")
        return self._call("position.save", text.outputs, [], "save"), list(text.outputs)
