"""The operations and tensors of a graph, by name."""

from __future__ import annotations

import threading
from typing import Any, Generic, Protocol, TypeVar

import jax.extend.core as jex

from jflow.graph.collections import Collections
from jflow.graph.names import unknown_operation


class HasOutputs(Protocol):
    """The interface of an operation."""

    @property
    def outputs(self) -> tuple[Any, ...]:
        """Its tensors."""


O = TypeVar("O", bound=HasOutputs)  # noqa: E741 - an operation
T = TypeVar("T")


class Members(Collections, Generic[O, T]):
    """What a graph has, `O` being its operations and `T` its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._operations: dict[str, O] = {}
        self._tensors: dict[jex.Var, T] = {}
        self._values: dict[str, T] = {}

    def get_operations(self) -> list[O]:
        """Returns all operations in the order of their creation."""
        with self._lock:
            return list(self._operations.values())

    @property
    def is_empty(self) -> bool:
        """Whether the graph has no operations."""
        return not self._operations

    def get_operation_by_name(self, name: str) -> O:
        """Returns the operation of that name. Raises KeyError if there is none."""
        try:
            return self._operations[name]
        except KeyError:
            raise KeyError(unknown_operation(name, self._operations)) from None

    def get_tensor_by_name(self, name: str) -> T:
        """Returns the tensor "operation:index"; a variable's name refers to its value.

        Raises:
          ValueError: if the name has another form.
          KeyError: if the tensor does not exist.
        """
        op_name, colon, index = name.rpartition(":")
        if not colon or not index.isdigit():
            raise ValueError(f"a tensor name is 'operation:index', got {name!r}")
        if (value := self._values.get(name)) is not None:
            return value
        outputs: tuple[T, ...] = self.get_operation_by_name(op_name).outputs
        if int(index) >= len(outputs):
            raise KeyError(f"operation {op_name!r} has {len(outputs)} outputs, asked for {name!r}")
        return outputs[int(index)]

    def tensor_of(self, var: jex.Var) -> T:
        """Returns the tensor of an equation's variable."""
        return self._tensors[var]
