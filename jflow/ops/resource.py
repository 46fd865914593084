"""Handles of resources: what queues, accumulators and readers have in common."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from jflow.errors import InvalidArgumentError
from jflow.graph import Graph, Operation, ResourceRef, Tensor, origin, owners
from jflow.graph import get_default_graph as _default_graph
from jflow.graph.calls import call
from jflow.graph.completion import visible
from jflow.graph.primitives import host_p, resource_p
from jflow.values import AbstractValue, HostArray, as_array, string
from jflow.xla import internals


class _Bound(NamedTuple):
    """An operation in a function that JAX traces."""

    outputs: tuple[Any, ...]


class Handle:
    """A resource as its user has it.

    In graph code it is part of the graph. Inside `jflow.connect` it is *live*: its methods for
    plain Python work at once. With a shared name it lives in the container of its block, on the
    device of its block, and everybody there shares it; without one each session has its own, which
    goes with the session.

    Args:
      kind: what it is.
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
        self._graph = _default_graph() if self._owner is None else Graph()
        container = _default_graph().scopes.container
        with self._graph.scopes.replaced(control_inputs=()):
            self._op = self._graph.add(resource_p, [], [], name=name)
        private = self._op.name if self._owner is None else self._owner.unnamed()
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
        """The graph it belongs to; a live one has one of its own."""
        return self._graph

    @property
    def is_live(self) -> bool:
        """Whether plain Python can use it without a session."""
        return self._owner is not None

    def _call(
        self,
        function: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[AbstractValue],
        name: str,
        *,
        attributes: dict[str, Any] | None = None,
        may_wait: bool = True,
        others: Sequence[ResourceRef] = (),
    ) -> Operation:
        """Adds an operation on it to its graph.

        Args:
          function, inputs, outputs, name, attributes, may_wait: as for `call`.
          others: resources that it uses besides.
        """
        with self._graph.as_default():
            return call(
                self._graph,
                function,
                inputs,
                outputs,
                name=name,
                resources=(self._ref, *others),
                may_wait=may_wait,
                attributes=attributes,
            )

    def _tensor(self, value: Any, dtype: Any) -> Tensor:
        """A value as an input of an operation on it. Raises TypeError if its dtype is another."""
        if getattr(value, "to_tensor", None) is None:
            return self._graph.constant(value, dtype, on_host=True)
        tensor = self._graph.as_tensor(value)
        if tensor.dtype != dtype:
            raise TypeError(f"{self!r} takes {dtype.name}, got {tensor!r}")
        return tensor

    @property
    def _is_traced(self) -> bool:
        """Whether it is used by a function that JAX traces."""
        return self.is_live and internals.is_tracing()

    @property
    def _acts_at_once(self) -> bool:
        """Whether its methods do what they say, and are no operations of a graph or function."""
        return self.is_live and not internals.is_tracing()

    def _operand(self, value: Any, dtype: Any) -> Any:
        """As `_tensor`, or what JAX takes where it traces."""
        if not self._is_traced:
            return self._tensor(value, dtype)
        found = value.dtype if isinstance(value, jax.Array) else dtype
        if found != dtype:
            raise TypeError(f"{self!r} takes {dtype.name}, got {value!r}")
        if dtype == string:
            raise TypeError(f"{self!r} takes strings, which a function that JAX traces has not")
        array = value if isinstance(value, jax.Array) else as_array(value, dtype)
        return jax.lax.stop_gradient(jax.numpy.asarray(array))

    def _act(
        self,
        function: str,
        inputs: Sequence[Any],
        outputs: Sequence[AbstractValue],
        name: str,
        attributes: dict[str, Any] | None = None,
    ) -> Any:
        """As `_call`, or adds it to the function that JAX is tracing.

        Returns:
          Something with the `outputs`: the operation in graph code.
        """
        if not self._is_traced:
            return self._call(function, inputs, outputs, name, attributes=attributes)
        for aval in outputs:
            if isinstance(aval, HostArray):
                raise TypeError(
                    f"{self!r} gives {aval.str_short()}, which a function that JAX traces cannot "
                    "have; use it in graph code or from plain Python, or give it a shape"
                )
        values = host_p.bind(
            *inputs,
            function=function,
            attributes=json.dumps(attributes or {}, sort_keys=True),
            resources=(self._ref,),
            may_wait=True,
            outputs=tuple(outputs),
            line=origin.describe(origin.user_place()),
        )
        return _Bound(tuple(values))

    def __repr__(self) -> str:
        kind = "live " if self.is_live else ""
        details = "".join(f" {key}={value}" for key, value in self._details().items())
        return f"<jflow.{type(self).__name__.lstrip('_')} {kind}{self.name!r}{details}>"

    def _details(self) -> dict[str, Any]:
        """What its repr says about it, besides its kind and name."""
        return {}

    def __dir__(self) -> list[str]:
        return visible(super().__dir__(), "ref")
