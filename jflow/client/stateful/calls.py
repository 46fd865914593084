"""Calls of host functions on a resource, as operations of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jflow.base.values import AbstractValue
from jflow.compiler.graph import Graph, Operation, ResourceRef, Symbolic, Tensor
from jflow.compiler.graph.calls import call
from jflow.compiler.graph.packing import has_tensors


class ResourceCall(Protocol):
    """A call, either added to a graph or bound as a JAX primitive."""

    @property
    def outputs(self) -> Sequence[Any]:
        """The results: tensors or traced values."""


class HostCalls(Protocol):
    """Makes host calls on a resource."""

    def operand(self, value: Any, dtype: Any) -> Any:
        """Converts a value to an input of a call. Raises TypeError if the dtype differs."""

    def call(
        self,
        function: str,
        inputs: Sequence[Any],
        outputs: Sequence[AbstractValue],
        name: str,
        attributes: dict[str, Any] | None = None,
    ) -> ResourceCall:
        """Makes a call.

        Args:
          function: the name of the host function.
          inputs: the operands.
          outputs: the abstract values of the results.
          name: the name of the operation.
          attributes: its other arguments, plain values.
        """


class GraphCalls:
    """Adds calls on a resource to its graph.

    Args:
      graph: the graph.
      ref: the resource.
      describe: returns its repr, for messages.
    """

    def __init__(self, graph: Graph, ref: ResourceRef, describe: Callable[[], str]) -> None:
        self.graph = graph
        self.ref = ref
        self.describe = describe

    def operand(self, value: Any, dtype: Any) -> Tensor:
        if not isinstance(value, Symbolic) and not has_tensors(value):
            return self.graph.constant(value, dtype, on_host=True)
        tensor = self.graph.as_tensor(value, dtype)
        if tensor.dtype != dtype:
            raise TypeError(f"{self.describe()} expected dtype {dtype.name}, got {tensor!r}")
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
          is_blocking: whether the call may have to wait for other steps.
          others: other resources that it uses.
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
