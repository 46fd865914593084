"""Operations on queues in graph code and traced functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jflow.base.values import (
    TensorSpec,
    abstract,
    is_compatible,
    is_known,
    plain_shape,
    string,
    unknown_dim,
)
from jflow.client.stateful.calls import HostCalls, ResourceCall
from jflow.compiler.graph import Symbolic, Tensor

_INT64 = np.dtype(np.int64)


@dataclass(frozen=True)
class QueueElements:
    """The types of a queue's components; checks values against them.

    Attributes:
      components: the types of the components.
      describe: returns the repr of the queue, for messages.
      by_priority: whether the first component is a priority.
      is_batchable: whether elements can be stacked.
    """

    components: Sequence[TensorSpec]
    describe: Callable[[], str]
    by_priority: bool
    is_batchable: bool

    def avals(self, *batch: Any) -> list[Any]:
        """Returns the abstract values of an element's components, or of a batch's of a given size.

        Raises:
          ValueError: if elements cannot be stacked.
        """
        if batch and not self.is_batchable:
            raise ValueError(
                f"{self.describe()} has components of unknown shapes, so its elements cannot be "
                "stacked; pass shapes= to the queue, or use a PaddingFIFOQueue"
            )
        return [component.aval(*batch) for component in self.components]

    def check_shape(self, component: TensorSpec, shape: Any, is_batch: bool) -> None:
        """Raises ValueError if a shape, as far as it is known, is not that of a component."""
        sizes = plain_shape(shape)
        if sizes is None or component.shape is None:
            return
        expected_shape = (None, *component.shape) if is_batch else component.shape
        if not is_compatible(expected_shape, shape):
            raise ValueError(
                f"expected {'a batch' if is_batch else 'an element'} of shape {expected_shape} for "
                f"{self.describe()}, got {tuple(sizes)}"
            )

    def check_rows(self, batches: Sequence[Any]) -> None:
        """Raises ValueError if the components of a batch cannot have equal numbers of rows."""
        shapes = [batch.shape for batch in batches]
        for i, shape in enumerate(shapes):
            if shape == ():
                raise ValueError(
                    f"the first dimension of a batch is its rows, but component {i} of the batch "
                    f"for {self.describe()} is a scalar"
                )
        sizes = {i: shape[0] for i, shape in enumerate(shapes) if shape and is_known(shape[0])}
        for i, size in sizes.items():
            first = next(iter(sizes))
            if size != sizes[first]:
                raise ValueError(
                    f"components of a batch for {self.describe()} need the same number of rows: "
                    f"component {i} has {size}, component {first} has {sizes[first]}"
                )


@dataclass(frozen=True)
class QueueOperation:
    """An operation on a queue: its kernel, and its names in graphs and in plain Python.

    Attributes:
      kernel: the name of its kernel.
      suffix: the end of the names of its operations in graphs, as in TensorFlow.
      method: the name of the method for plain Python, which messages mention.
      is_batch: whether it adds the rows of a batch.
      up_to: whether fewer elements are enough once the queue is closed.
    """

    kernel: str
    suffix: str
    method: str
    is_batch: bool = False
    up_to: bool = False

    @property
    def kernel_name(self) -> str:
        """The name of the kernel without the prefix "queue."."""
        return self.kernel.removeprefix("queue.")


ENQUEUE = QueueOperation("queue.enqueue", "enqueue", "put")
ENQUEUE_MANY = QueueOperation("queue.enqueue_many", "enqueue_many", "put_many", is_batch=True)
DEQUEUE = QueueOperation("queue.dequeue", "Dequeue", "get")
DEQUEUE_MANY = QueueOperation("queue.dequeue_many", "DequeueMany", "get_many")
DEQUEUE_UP_TO = QueueOperation("queue.dequeue_many", "DequeueUpTo", "get_up_to", up_to=True)
SIZE = QueueOperation("queue.size", "Size", "size")
IS_CLOSED = QueueOperation("queue.is_closed", "is_closed", "is_closed")
CLOSE = QueueOperation("queue.close", "Close", "close")


class QueueOperations:
    """Makes the calls on a queue; each method is for one kind of operation.

    Elements are sequences of components here. Names are those of operations; None for the default.

    Args:
      elements: the types of the components.
      calls: adds the calls to a graph or to a traced function.
      title: the prefix of the names of operations.
    """

    def __init__(self, elements: QueueElements, calls: HostCalls, title: str) -> None:
        self.elements = elements
        self.calls = calls
        self.title = title

    def enqueue(
        self, operation: QueueOperation, values: Sequence[Any], name: str | None = None
    ) -> Any:
        """Enqueues an element, or the rows of a batch."""
        elements = self.elements
        operands: list[Any] = []
        for component, value in zip(elements.components, values, strict=True):
            is_priority = elements.by_priority and not operands
            dtype = _priority_dtype(value) if is_priority else component.dtype
            operand = self.calls.operand(value, dtype)
            elements.check_shape(component, operand.shape, operation.is_batch)
            operands.append(operand)
        if operation.is_batch:
            elements.check_rows(operands)
        attributes = {"by_priority": True} if elements.by_priority else {}
        return self._call(operation, operands, [], name, attributes)

    def dequeue(self, operation: QueueOperation, name: str | None = None) -> Sequence[Any]:
        """Dequeues an element."""
        return self._call(operation, [], self.elements.avals(), name).outputs

    def dequeue_many(
        self, operation: QueueOperation, n: Any, name: str | None = None
    ) -> Sequence[Any]:
        """Dequeues a batch of `n` elements, or up to `n`; see `QueueOperation.up_to`."""
        if isinstance(n, Symbolic | jax.core.Tracer):
            count = checked_count(self.calls.operand(n, n.dtype))
            return self.dequeue_counted(operation, [count], unknown_dim(), name)
        n_elements = as_integer(n, "the number of elements to dequeue")
        if n_elements < 0:
            raise ValueError(f"cannot dequeue {n} elements from {self.elements.describe()}")
        size = n_elements if n_elements and not operation.up_to else unknown_dim()
        return self.dequeue_counted(operation, [], size, name, count=n_elements)

    def dequeue_counted(
        self,
        operation: QueueOperation,
        counts: Sequence[Any],
        size: Any,
        name: str | None,
        **attributes: Any,
    ) -> Sequence[Any]:
        """Dequeues a batch whose counts are operands.

        Args:
          operation: the operation.
          counts: the operands: the number of elements to take, and the least that is enough.
          size: the size of the batch, for its abstract values.
          name: the name of the operation.
          attributes: other arguments of the call.
        """
        if operation.up_to:
            attributes["up_to"] = True
        return self._call(operation, counts, self.elements.avals(size), name, attributes).outputs

    def query(self, operation: QueueOperation, dtype: Any, name: str | None = None) -> Any:
        """Returns a property of the queue, dtype[]."""
        return self._call(operation, [], [abstract((), np.dtype(dtype))], name).outputs[0]

    def change(
        self, operation: QueueOperation, attributes: dict[str, Any], name: str | None = None
    ) -> Any:
        """Makes a call that changes the state of the queue, such as closing it."""
        return self._call(operation, [], [], name, attributes)

    def _call(
        self,
        operation: QueueOperation,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        name: str | None,
        attributes: dict[str, Any] | None = None,
    ) -> ResourceCall:
        title = name or f"{self.title}_{operation.suffix}"
        return self.calls.call(operation.kernel, inputs, outputs, title, attributes)


def as_integer(value: Any, what: str) -> int:
    """Converts a Python or NumPy integer to an int. Raises TypeError if it is not an integer."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    raise TypeError(f"{what} must be an integer, got {value!r:.80}")


def checked_count(count: Tensor) -> Tensor:
    """Returns a count that is a tensor. Raises TypeError unless it is an integer scalar."""
    is_integer = count.dtype != string and jax.dtypes.issubdtype(count.dtype, np.integer)
    if not is_integer or not is_compatible((), count.shape):
        raise TypeError(
            f"expected an integer scalar as the number of elements to dequeue, got {count!r}"
        )
    return count


def _priority_dtype(value: Any) -> Any:
    """Returns the dtype to convert a priority to; tensors keep theirs, and are widened later."""
    dtype: Any = value.dtype if isinstance(value, Symbolic) else None
    is_number = isinstance(dtype, np.dtype) and jax.dtypes.issubdtype(dtype, np.integer)
    return dtype if is_number and np.can_cast(dtype, _INT64) else _INT64
