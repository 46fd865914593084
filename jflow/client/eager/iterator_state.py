"""Iterator state in containers: the position of an input pipeline, from which a program resumes."""

from __future__ import annotations

from typing import Any

from jflow.base.values import abstract, as_array, string, unknown_dim
from jflow.client.eager.executables import Executables, FedOperation
from jflow.client.stateful.handle import Handle
from jflow.compiler.graph.primitives import placeholder_p
from jflow.state.resources.iterator_state import IteratorStateSpec


class IteratorState(Handle):
    """An iterator's state, stored as text in a container; made inside `jflow.connect`.

    With `dataset.iterator(position=jflow.IteratorState("train"))`, a restarted program resumes at
    the position that the previous one saved last.

    Args:
      shared_name: its name in the container.
      name: name of its handle op.

    Raises:
      RuntimeError: outside of `jflow.connect`.
    """

    _acts_eagerly = True

    def __init__(self, shared_name: str, name: str = "iterator_state") -> None:
        super().__init__("iterator_state", IteratorStateSpec(), shared_name, name)
        if self._owner is None:
            raise RuntimeError(
                "an IteratorState is for plain Python: make it inside `with jflow.connect(target):`"
            )
        self._executables = Executables(self._owner, self._graph, self._describe())

    def load(self) -> str | None:
        """Returns the text saved last; None if there is none."""
        (texts,) = self._executables.run_operation("load", self._build_load, ())
        return texts[0].decode() if len(texts) else None

    def save(self, text: str) -> None:
        """Replaces the saved text."""
        self._executables.run_operation("save", self._build_save, [as_array(text, string)])

    def _build_load(self) -> FedOperation:
        aval = abstract((unknown_dim(),), string)
        return self._calls.call("iterator_state.load", [], [aval], "load", is_blocking=False), []

    def _build_save(self) -> FedOperation:
        text: Any = self._graph.add(placeholder_p, [], [abstract((), string)], name="text")
        return self._calls.call("iterator_state.save", text.outputs, [], "save"), list(text.outputs)
