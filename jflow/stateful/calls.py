"""Calls of host functions on a resource, as operations of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jflow.graph import Graph, Operation, ResourceRef, Tensor
from jflow.graph.calls import call
from jflow.values import AbstractValue


class Called(Protocol):
    """A call that was added or bound."""

    @property
    def outputs(self) -> Sequence[Any]:
        """What it gives: tensors or traced values."""


class HostCalls(Protocol):
    """How calls on one resource are made."""

    def operand(self, value: Any, dtype: Any) -> Any:
        """A value as an input of a call. Raises TypeError if it has another dtype."""

    def call(
        self,
        function: str,
        inputs: Sequence[Any],
        outputs: Sequence[AbstractValue],
        name: str,
        attributes: dict[str, Any] | None = None,
    ) -> Called:
        """Makes a call.

        Args:
          function: name of the host function.
          inputs: operands.
          outputs: abstract values of what it gives.
          name: name for the operation.
          attributes: its other arguments, as for `jflow.graph.calls.call`.
        """


class GraphCalls:
    """Adds calls on a resource to its graph.

    Args:
      graph: the graph.
      ref: the resource.
      describe: its repr, for messages.
    """

    def __init__(self, graph: Graph, ref: ResourceRef, describe: Callable[[], str]) -> None:
        self.graph = graph
        self.ref = ref
        self.describe = describe

    def operand(self, value: Any, dtype: Any) -> Tensor:
        if getattr(value, "to_tensor", None) is None:
            return self.graph.constant(value, dtype, on_host=True)
        tensor = self.graph.as_tensor(value)
        if tensor.dtype != dtype:
            raise TypeError(f"{self.describe()} takes {dtype.name}, got {tensor!r}")
        return tensor

    def call(
        self,
        function: str,
        inputs: Sequence[Any],
        outputs: Sequence[AbstractValue],
        name: str,
        attributes: dict[str, Any] | None = None,
        *,
        is_blocking: bool = True,
        others: Sequence[ResourceRef] = (),
    ) -> Operation:
        """Adds a call to the graph.

        Args:
          function, inputs, outputs, name, attributes: as for `HostCalls.call`.
          is_blocking: whether the call can block until others act on the resource.
          others: further resources that it uses.
        """
        with self.graph.as_default():
            return call(
                self.graph,
                function,
                inputs,
                outputs,
                name=name,
                resources=(self.ref, *others),
                is_blocking=is_blocking,
                attributes=attributes,
            )
