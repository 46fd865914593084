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
from jflow.client.stateful.calls import Called, HostCalls
from jflow.compiler.graph import Tensor

_INT32 = np.dtype(np.int32)
_INT64 = np.dtype(np.int64)
_OPTIONAL = ("capacity_bytes", "seed")


@dataclass(frozen=True)
class QueueElements:
    """The types of a queue's components, and the checks of values against them.

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
        """Returns the abstract values of an element, or of a batch of a given size.

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
        """Raises ValueError if a shape, as far as it is known, does not match a component."""
        sizes = plain_shape(shape)
        if sizes is None or component.shape is None:
            return
        wanted = (None, *component.shape) if is_batch else component.shape
        if not is_compatible(wanted, shape):
            raise ValueError(
                f"expected {'a batch' if is_batch else 'an element'} of shape {wanted} for "
                f"{self.describe()}, got {tuple(sizes)}"
            )

    def check_rows(self, batches: Sequence[Any]) -> None:
        """Raises ValueError if components of a batch cannot have the same number of rows."""
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


class QueueOperations:
    """Makes the calls on a queue. Elements are sequences of components here.

    Args:
      elements: the types of the components.
      calls: adds the calls to a graph or to a traced function.
      title: the prefix of the names of operations.
    """

    def __init__(self, elements: QueueElements, calls: HostCalls, title: str) -> None:
        self.elements = elements
        self.calls = calls
        self.title = title

    def enqueue(self, values: Sequence[Any], name: str | None = None) -> Called:
        """Adds an element."""
        return self._add("queue.enqueue", values, name or f"{self.title}_enqueue", False)

    def enqueue_many(self, values: Sequence[Any], name: str | None = None) -> Called:
        """Adds the rows of a batch."""
        return self._add("queue.enqueue_many", values, name or f"{self.title}_enqueue_many", True)

    def dequeue(self, name: str | None = None) -> Sequence[Any]:
        """Takes an element."""
        return self._take("queue.dequeue", name or f"{self.title}_Dequeue")

    def dequeue_many(self, n: Any, name: str | None = None) -> Sequence[Any]:
        """Takes a batch of `n` elements."""
        return self._take_many(n, name or f"{self.title}_DequeueMany")

    def dequeue_up_to(self, n: Any, name: str | None = None) -> Sequence[Any]:
        """Takes a batch of `n` elements, or fewer once the queue is closed."""
        return self._take_many(n, name or f"{self.title}_DequeueUpTo", up_to=True)

    def dequeue_counted(
        self, counts: Sequence[Any], size: Any, name: str, attributes: dict[str, Any]
    ) -> Sequence[Any]:
        """Takes a batch.

        Args:
          counts: the operands: the number of elements to take, and the least that is enough.
          size: the size of the batch, for its abstract values.
          name: the name of the operation.
          attributes: other arguments of the call.
        """
        avals = self.elements.avals(size)
        return self.calls.call("queue.dequeue_many", counts, avals, name, attributes).outputs

    def size(self, name: str | None = None) -> Any:
        """Returns the number of elements."""
        return self._query("queue.size", _INT32, name or f"{self.title}_Size")

    def is_closed(self, name: str | None = None) -> Any:
        """Returns whether the queue is closed."""
        return self._query("queue.is_closed", np.dtype(bool), name or f"{self.title}_is_closed")

    def close(self, cancel_pending_enqueues: bool, name: str | None = None) -> Called:
        """Closes the queue."""
        attributes = {"cancel_pending_enqueues": cancel_pending_enqueues}
        return self._change("queue.close", attributes, name or f"{self.title}_Close")

    # The kinds of operations, each by the name of its kernel; an eager queue has its own. --------

    def _add(self, function: str, values: Sequence[Any], name: str, is_batch: bool) -> Called:
        elements = self.elements
        operands: list[Any] = []
        for component, value in zip(elements.components, values, strict=True):
            is_priority = elements.by_priority and not operands
            dtype = _widened(value) if is_priority else component.dtype
            operand = self.calls.operand(value, dtype)
            elements.check_shape(component, operand.shape, is_batch)
            operands.append(operand)
        if is_batch:
            elements.check_rows(operands)
        attributes = {"by_priority": True} if elements.by_priority else {}
        return self.calls.call(function, operands, [], name, attributes)

    def _take(self, function: str, name: str) -> Sequence[Any]:
        return self.calls.call(function, [], self.elements.avals(), name).outputs

    def _take_many(self, n: Any, name: str, **attributes: Any) -> Sequence[Any]:
        counts = []
        if getattr(n, "to_tensor", None) is not None or isinstance(n, jax.core.Tracer):
            counts = [checked_count(self.calls.operand(n, n.dtype))]
        else:
            attributes["count"] = as_integer(n, "the number of elements to dequeue")
            if n < 0:
                raise ValueError(f"cannot dequeue {n} elements from {self.elements.describe()}")
        is_exact = not counts and not attributes.get("up_to") and n > 0
        size = attributes["count"] if is_exact else unknown_dim()
        return self.dequeue_counted(counts, size, name, attributes)

    def _query(self, function: str, dtype: Any, name: str) -> Any:
        return self.calls.call(function, [], [abstract((), dtype)], name).outputs[0]

    def _change(self, function: str, attributes: dict[str, Any], name: str) -> Called:
        return self.calls.call(function, [], [], name, attributes)


def as_integer(value: Any, what: str) -> Any:
    """Converts an integer of Python or NumPy to an int; optional ones may be None.

    Raises:
      TypeError: if it is not an integer.
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if value is None and what in _OPTIONAL:
        return None
    raise TypeError(f"{what} must be an integer, got {value!r:.80}")


def checked_count(count: Tensor) -> Tensor:
    """Returns a tensor that is an integer scalar. Raises TypeError if it is not."""
    is_integer = count.dtype != string and jax.dtypes.issubdtype(count.dtype, np.integer)
    if not is_integer or not is_compatible((), count.shape):
        raise TypeError(
            f"expected an integer scalar as the number of elements to dequeue, got {count!r}"
        )
    return count


def _widened(value: Any) -> Any:
    """Returns the dtype that a priority needs; tensors of smaller integers are widened later."""
    dtype: Any = value.dtype if getattr(value, "to_tensor", None) is not None else None
    is_number = isinstance(dtype, np.dtype) and jax.dtypes.issubdtype(dtype, np.integer)
    return dtype if is_number and np.can_cast(dtype, _INT64) else _INT64
