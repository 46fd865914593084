"""`Handle`: the base class of queues, accumulators, readers and lookup tables."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

from jflow.base.cards import Card, Carded
from jflow.base.handles import Uncopyable
from jflow.base.packing import Record
from jflow.base.values import Conversions
from jflow.client.stateful.calls import GraphCalls
from jflow.compiler.graph import Graph, Operation, ResourceRef, owners
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.members import visible
from jflow.compiler.graph.primitives import resource_p
from jflow.errors import InvalidArgumentError


class Handle(Conversions, Carded, Uncopyable):
    """The user's reference to a resource.

    In graph code it is part of the graph. Inside `jflow.connect` a queue or iterator state is
    *eager*: its methods for plain Python act immediately. With a shared name it is in the container
    and on the device of the enclosing scopes, and all sessions share it. Without one each session
    has its own, which is freed with the session.

    Args:
      kind: the kind of resource.
      definition: its spec, as plain values.
      shared_name: its name in the container, or None.
      name: the name of its handle operation.

    Raises:
      InvalidArgumentError: if the shared name starts with "_".
      RuntimeError: if it is made inside `jflow.connect`, and has graph operations only.
    """

    _instead_of_copy = (
        "it stands for state that a copy would share; where it is needed, make one with the same "
        "arguments and the same shared_name"
    )
    _instead_of_value = "use its methods"
    """The advice for programs that use the resource as an array."""
    _acts_eagerly: ClassVar[bool] = False
    """Whether the resource has methods that act immediately inside `jflow.connect`."""

    def __init__(self, kind: str, definition: Record, shared_name: str | None, name: str) -> None:
        is_text = isinstance(shared_name, str)
        if shared_name is not None and not (is_text and shared_name and shared_name[0] != "_"):
            raise InvalidArgumentError(
                f'expected a shared name that is text and does not start with "_", '
                f"got {shared_name!r}"
            )
        self._owner = owners.current()
        if self._owner is not None and not self._acts_eagerly:
            raise RuntimeError(
                f"a {type(self).__name__} has operations for sessions only; make it and use it in "
                "graph code: with tf.Graph().as_default(): …"
            )
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
            definition.to_bytes(),
            shared_name is not None,
            self._op.spec,
            self._graph if self._owner is None else self._owner,
        )
        self._graph.declare(self._ref, self._op)
        self._calls = GraphCalls(self._graph, self._ref, self._describe())

    @property
    def name(self) -> str:
        """The shared name, or else the name of the handle op."""
        return self._ref.name if self._ref.is_shared else self._op.name

    @property
    def _title(self) -> str:
        """The last part of the handle op's name, which prefixes names of operations."""
        return self._op.name.rpartition("/")[2]

    @property
    def op(self) -> Operation:
        """The handle op of the resource."""
        return self._op

    @property
    def ref(self) -> ResourceRef:
        """The reference to the resource in equations."""
        return self._ref

    @property
    def graph(self) -> Graph:
        """The graph of the resource; an eager resource has a graph of its own."""
        return self._graph

    @property
    def is_eager(self) -> bool:
        """Whether the resource can be used without a session."""
        return self._owner is not None

    def _value_for(self, use: str) -> NoReturn:
        raise TypeError(f"{self!r} is not an array; {self._instead_of_value}")

    def __repr__(self) -> str:
        mode = "eager " if self.is_eager else ""
        details = "".join(f" {key}={value}" for key, value in self._details().items())
        container = f" container={self._ref.container!r}" if self._ref.container else ""
        return f"<jflow.{type(self).__name__.lstrip('_')} {mode}{self.name!r}{details}{container}>"

    def _card(self) -> Card:
        is_shared = self._ref.is_shared
        facts = (
            *self._details().items(),
            *self._state_facts(),
            ("container", self._ref.container or "the default one"),
            ("device", self._ref.spec),
            ("shared", "by its name" if is_shared else "no, each session has its own"),
        )
        note = "" if self.is_eager else "In graph code: what it holds is that of a session."
        return Card(type(self).__name__.lstrip("_"), self.name, facts, note=note)

    def _state_facts(self) -> Sequence[tuple[str, object]]:
        """Returns what the resource holds now, for its card; asked with `ask` only."""
        return ()

    def _describe(self) -> Callable[[], str]:
        """Returns a function that returns the resource's repr but does not keep it alive."""
        handle, name = weakref.ref(self), f"<jflow.{type(self).__name__} {self.name!r}>"

        def describe() -> str:
            resource = handle()
            return name if resource is None else repr(resource)

        return describe

    def _details(self) -> dict[str, Any]:
        """Returns the attributes that the repr shows in addition to kind and name."""
        return {}

    def __dir__(self) -> list[str]:
        return visible(super().__dir__(), "ref")
