"""Handles of resources: what queues, accumulators and readers have in common."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from typing import Any

from jflow.errors import InvalidArgumentError
from jflow.graph import Graph, Operation, ResourceRef, owners
from jflow.graph import get_default_graph as _default_graph
from jflow.graph.completion import visible
from jflow.graph.primitives import resource_p
from jflow.stateful.calls import GraphCalls


class Handle:
    """The user's reference to a resource.

    In graph code it is part of the graph. Inside `jflow.connect` it is *eager*: its methods for
    plain Python work at once. With a shared name it lives in the container of its block, on the
    device of its block, and all sessions share it; without one each session has its own, which
    goes with the session.

    Args:
      kind: the kind of resource.
      definition: how to make it.
      shared_name: its name in the container, or None.
      name: name of the operation that stands for it.

    Raises:
      InvalidArgumentError: if the shared name starts with "_".
    """

    def __init__(
        self, kind: str, definition: dict[str, Any], shared_name: str | None, name: str
    ) -> None:
        is_text = isinstance(shared_name, str)
        if shared_name is not None and not (is_text and shared_name and shared_name[0] != "_"):
            raise InvalidArgumentError(
                f'a shared name is text that does not start with "_", got {shared_name!r}'
            )
        self._owner = owners.current()
        # Operations on an eager resource are built in a graph of its own.
        self._graph = _default_graph() if self._owner is None else Graph()
        container = _default_graph().scopes.here.container
        with self._graph.scopes.replaced(control_inputs=()):
            self._op = self._graph.add(resource_p, [], [], name=name)
        private = self._op.name
        if self._owner is not None:
            private = self._owner.unnamed(private)
        self._ref = ResourceRef(
            kind,
            shared_name or private,
            container,
            json.dumps(definition, sort_keys=True),
            shared_name is not None,
            self._op.spec,
            self._graph if self._owner is None else self._owner,
        )
        self._graph.declare(self._ref, self._op)
        self._calls = GraphCalls(self._graph, self._ref, self._describe())

    @property
    def name(self) -> str:
        """Its name: the shared one, or that of its operation."""
        return self._ref.name if self._ref.is_shared else self._op.name

    @property
    def _title(self) -> str:
        """What the names of its operations begin with; the scopes around them come in front."""
        return self._op.name.rpartition("/")[2]

    @property
    def op(self) -> Operation:
        """The operation that stands for it."""
        return self._op

    @property
    def ref(self) -> ResourceRef:
        """What equations call it."""
        return self._ref

    @property
    def graph(self) -> Graph:
        """The graph it belongs to; an eager one has one of its own."""
        return self._graph

    @property
    def is_eager(self) -> bool:
        """Whether plain Python can use it without a session."""
        return self._owner is not None

    def __repr__(self) -> str:
        mode = "eager " if self.is_eager else ""
        details = "".join(f" {key}={value}" for key, value in self._details().items())
        return f"<jflow.{type(self).__name__.lstrip('_')} {mode}{self.name!r}{details}>"

    def _describe(self) -> Callable[[], str]:
        """What gives its repr without keeping it alive: what works for it may live on."""
        handle, name = weakref.ref(self), f"<jflow.{type(self).__name__} {self.name!r}>"

        def describe() -> str:
            found = handle()
            return name if found is None else repr(found)

        return describe

    def _details(self) -> dict[str, Any]:
        """What its repr says about it, in addition to its kind and name."""
        return {}

    def __dir__(self) -> list[str]:
        return visible(super().__dir__(), "ref")
