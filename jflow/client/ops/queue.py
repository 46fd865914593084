"""The public base class of queues, in graphs and, inside `jflow.connect`, in plain Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jflow.base.cards import ask
from jflow.base.values import TensorShape
from jflow.client.eager import EagerQueue, QueueReader, QueueWriter, TracedCalls
from jflow.client.eager.streams import MAX_AHEAD_BYTES
from jflow.client.ops.slices import refuse_sparse
from jflow.client.stateful import GraphCalls, Handle, QueueOperations, Structure
from jflow.client.stateful.queue import (
    CLOSE,
    DEQUEUE,
    DEQUEUE_MANY,
    DEQUEUE_UP_TO,
    ENQUEUE,
    ENQUEUE_MANY,
    IS_CLOSED,
    SIZE,
    QueueElements,
    as_integer,
    checked_count,
)
from jflow.compiler.graph import Operation, Symbolic, Tensor
from jflow.errors import OutOfRangeError
from jflow.plan.xla.internals import is_tracing
from jflow.state.resources.queue import QueueSpec
from jflow.state.resources.queue.spec import PRIORITY

_INT32 = np.dtype(np.int32)
_OPTIONAL = ("capacity_bytes", "seed")
"""The bounds that a queue need not have."""


class QueueBase(Handle):
    """A queue of elements, each of which consists of one or more components.

    An element has the structure of `dtypes`, in which there is one dtype for each component:
    a single dtype, a sequence, or any pytree. `shapes` has the same structure. With `names`, the
    elements of a sequence are dicts. Enqueue takes this structure, and dequeue returns it.

    Attempts are served in order: an enqueue that waits also holds back later enqueues, and a
    dequeue later dequeues.
    """

    _acts_eagerly = True
    _instead_of_value = (
        "take an element first: queue.dequeue() in graph code, queue.get() outside of it"
    )

    def __init__(
        self,
        kind: str,
        structure: Structure,
        shared_name: str | None,
        name: str,
        bounds: dict[str, int | None],
    ) -> None:
        self._structure = structure
        self._spec = QueueSpec(
            kind,
            components=tuple(component.physical for component in structure.components),
            names=structure.names,
            **{
                what: as_integer(value, what)
                for what, value in bounds.items()
                if value is not None or what not in _OPTIONAL
            },
        )
        super().__init__("queue", self._spec, shared_name, name)
        elements = QueueElements(
            structure.components, self._describe(), kind == PRIORITY, self._spec.is_batchable
        )
        self._operations: QueueOperations
        if self._owner is None:
            self._operations = QueueOperations(elements, self._calls, self._title)
        else:
            traced = TracedCalls(self._ref, self._describe())
            self._operations = EagerQueue(self._owner, self._calls, traced, elements, self._title)

    @staticmethod
    def from_list(index: Any, queues: Sequence[QueueBase]) -> QueueBase:
        """Returns the queue at an index that is computed when a step runs.

        Args:
          index: integer scalar.
          queues: graph queues on one device, with equal dtypes, shapes and names.

        Raises:
          TypeError: if one is not a graph queue, or dtypes differ.
          ValueError: if the list is empty, or names or shapes differ.
        """
        return _SelectedQueue(index, queues)

    @property
    def dtypes(self) -> list[Any]:
        """The dtypes of the components."""
        return [component.dtype for component in self._structure.components]

    @property
    def shapes(self) -> list[TensorShape]:
        """The shapes of the components."""
        return [TensorShape.of(component.shape) for component in self._structure.components]

    @property
    def names(self) -> list[str]:
        """The names of the components; empty if they have none."""
        return [*self._structure.names]

    # Operations -------------------------------------------------------------------------------

    def enqueue(self, vals: Any, name: str | None = None) -> Any:
        """Returns an operation that adds an element; it blocks while the queue is full.

        On an eager queue this and the other operations run at once, as `put` does; inside a
        `jflow.function` they become part of the function.

        Args:
          vals: the element, in the structure of `dtypes`. If that is a single dtype, a list or
            tuple of length one holds the component, as in TensorFlow; `put` takes such a list as
            the component itself.
          name: name of the operation.

        Raises:
          ValueError, TypeError: if the element has another structure, dtype or shape.
          CancelledError: in the step, if the queue is closed.
        """
        return self._operations.enqueue(ENQUEUE, self._operands(vals), name)

    def enqueue_many(self, vals: Any, name: str | None = None) -> Any:
        """Returns an operation that adds the rows of a batch in order, each once there is room.

        Args:
          vals: a batch of each component, dtype[n, *shape], in the structure that `enqueue` takes.
          name: name of the operation.

        Raises:
          ValueError, TypeError: if the batch has another structure, dtype or shape.
          CancelledError: in the step, if the queue is closed; rows that were added stay.
        """
        return self._operations.enqueue(ENQUEUE_MANY, self._operands(vals), name)

    def dequeue(self, name: str | None = None) -> Any:
        """Removes an element and returns its tensors; blocks while the queue is empty.

        Args:
          name: name of the operation.

        Returns:
          A tensor for each component, in the structure of `dtypes`.

        Raises:
          OutOfRangeError: in the step, if the queue is closed and empty.
        """
        return self._structure.unflatten(self._operations.dequeue(DEQUEUE, name))

    def dequeue_many(self, n: Any, name: str | None = None) -> Any:
        """Removes `n` elements and returns them stacked along a new first dimension.

        It takes elements as they arrive, and puts them back if the step fails before it has `n`.

        Args:
          n: integer scalar.
          name: name of the operation.

        Returns:
          dtype[n, *shape] for each component, in the structure of `dtypes`.

        Raises:
          ValueError: if `n` is negative, or the queue has no shapes.
          OutOfRangeError: in the step, if the queue is closed and has fewer than `n` elements.
        """
        return self._structure.unflatten(self._operations.dequeue_many(DEQUEUE_MANY, n, name))

    def dequeue_up_to(self, n: Any, name: str | None = None) -> Any:
        """Removes up to `n` elements and returns them stacked along a new first dimension.

        It waits for `n` elements like `dequeue_many`, but returns fewer once the queue is closed.

        Args:
          n: integer scalar.
          name: name of the operation.

        Returns:
          dtype[m, *shape] for each component, with 1 <= m <= n, in the structure of `dtypes`.

        Raises:
          ValueError: if `n` is negative, or the queue has no shapes.
          OutOfRangeError: in the step, if the queue is closed and empty.
        """
        return self._structure.unflatten(self._operations.dequeue_many(DEQUEUE_UP_TO, n, name))

    def size(self, name: str | None = None) -> Any:
        """Returns the number of elements, i32[]."""
        return self._operations.query(SIZE, np.int32, name)

    def is_closed(self, name: str | None = None) -> Any:
        """Returns whether the queue is closed, bool[]."""
        return self._operations.query(IS_CLOSED, np.bool_, name)

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Any:
        """Returns an operation that closes the queue to new elements; those in it can be dequeued.

        Args:
          cancel_pending_enqueues: whether enqueues that wait fail; otherwise they complete.
          name: name of the operation.
        """
        attributes = {"cancel_pending_enqueues": bool(cancel_pending_enqueues)}
        return self._operations.change(CLOSE, attributes, name)

    # Plain Python -----------------------------------------------------------------------------

    def put(self, element: Any, timeout: float | None = None) -> None:
        """Adds an element to an eager queue; blocks while the queue is full.

        Args:
          element: NumPy or JAX arrays, numbers, text or bytes, in the structure of `dtypes`.
          timeout: limit of the call in seconds; None for the connection's. With 0 it does not wait
            for room. Setup at the first call always has the connection's limit.

        Raises:
          ValueError, TypeError: if the element has another structure, dtype or shape.
          CancelledError: if the queue is closed.
          DeadlineExceededError: if the time is over; the element was not added.
        """
        self._plain.put(ENQUEUE, self._structure.flatten(element), timeout)

    def put_many(self, batch: Any, timeout: float | None = None) -> None:
        """Adds the rows of a batch to an eager queue in order, each once there is room.

        Args:
          batch: dtype[n, *shape] for each component, in the structure of `dtypes`.
          timeout: limit of the call in seconds; None for the connection's.

        Raises:
          ValueError, TypeError, CancelledError, DeadlineExceededError: as `put`; rows that were
            added before a CancelledError or DeadlineExceededError stay in the queue.
        """
        self._plain.put(ENQUEUE_MANY, self._structure.flatten(batch), timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Removes an element of an eager queue and returns it; blocks while the queue is empty.

        Args:
          timeout: limit of the call in seconds; None for the connection's. With 0 it does not wait
            for an element. Setup at the first call always has the connection's limit.

        Returns:
          NumPy arrays in the structure of `dtypes`.

        Raises:
          OutOfRangeError: if the queue is closed and empty.
          DeadlineExceededError: if the time is over; nothing was removed.
        """
        return self._structure.unflatten(self._plain.get(DEQUEUE, timeout))

    def get_many(self, n: int, timeout: float | None = None) -> Any:
        """Removes `n` elements of an eager queue; returns them stacked along a new first dimension.

        Args:
          n: number of elements.
          timeout: limit of the call in seconds; None for the connection's.

        Returns:
          dtype[n, *shape] NumPy arrays in the structure of `dtypes`.

        Raises:
          OutOfRangeError: if the queue is closed and has fewer than `n` elements.
          DeadlineExceededError: if the time is over; nothing was removed.
        """
        return self._structure.unflatten(self._plain.get_many(DEQUEUE_MANY, n, n, timeout))

    def get_up_to(self, n: int, minimum: int = 1, timeout: float | None = None) -> Any:
        """Removes up to `n` elements of an eager queue, those available, and returns them stacked.

        Args:
          n: maximum number of elements.
          minimum: number of elements to wait for, 1 to `n`; fewer if the queue is closed.
          timeout: limit of the call in seconds; None for the connection's.

        Raises:
          OutOfRangeError: if the queue is closed and empty.
          DeadlineExceededError: if the time is over; nothing was removed.
        """
        return self._structure.unflatten(self._plain.get_many(DEQUEUE_UP_TO, n, minimum, timeout))

    async def put_async(self, element: Any, timeout: float | None = None) -> None:
        """Awaitable form of `put`; if cancelled while it waits, the element is not added."""
        started = self._plain.start_put(ENQUEUE, self._structure.flatten(element), timeout)
        await asyncio.wrap_future(started)

    async def get_async(self, timeout: float | None = None) -> Any:
        """Awaitable form of `get`; if cancelled while it waits, nothing is removed.

        An element that is already in transit when the task is cancelled is lost. A `timeout` loses
        no element.
        """
        plain = self._plain
        arrays = await asyncio.wrap_future(plain.start_get(DEQUEUE, timeout))
        return self._structure.unflatten(plain.logical_element(arrays))

    def writer(self, max_ahead_bytes: int = MAX_AHEAD_BYTES) -> QueueWriter:
        """Returns a context manager that puts elements in bulk, without a round trip for each.

        Args:
          max_ahead_bytes: maximum size of the elements in transit, in bytes; then `put` blocks.
        """
        return self._plain.writer(self._structure.flatten, max_ahead_bytes)

    def reader(self, ahead: int = 64) -> QueueReader:
        """Returns an iterator and context manager that prefetches elements.

        Prefetched elements are lost when it is closed. Iteration of the queue itself loses none.

        Args:
          ahead: maximum number of prefetched elements.

        Raises:
          ValueError: if `ahead` is less than 1.
        """
        if ahead < 1:
            raise ValueError(f"expected to prefetch at least one element, got ahead={ahead}")
        return self._plain.reader(self._structure.unflatten, ahead)

    def __iter__(self) -> Iterator[Any]:
        """Removes and yields elements until the queue is closed and empty."""
        while True:
            try:
                element = self.get()
            except OutOfRangeError:
                return
            yield element

    def _details(self) -> dict[str, Any]:
        details: dict[str, Any] = {"capacity": self._spec.capacity}
        if self.names:
            details["names"] = self.names
        dtypes = ", ".join(dtype.name for dtype in self.dtypes)
        return details | {"dtypes": f"[{dtypes}]", "shapes": self.shapes}

    def _state_facts(self) -> Sequence[tuple[str, object]]:
        if not self.is_eager:
            return ()
        state = ask(lambda: (int(self.size()), bool(self.is_closed())))
        if state is None:
            return (("size", "unknown: its task did not reply in time"),)
        return (("size", state[0]), ("closed", "yes" if state[1] else ""))

    @property
    def _plain(self) -> EagerQueue:
        """The queue as an eager one. Raises RuntimeError in graph code and while JAX traces."""
        if is_tracing():
            raise RuntimeError(
                "JAX is tracing this function: use enqueue() and dequeue() in it, because an "
                "element taken now would be a constant of the function"
            )
        if not isinstance(self._operations, EagerQueue):
            raise RuntimeError(
                "this is graph code: run the operation in a session, or make the queue inside "
                "`with jflow.connect(target):` to use it from plain Python"
            )
        return self._operations

    def _operands(self, vals: Any) -> Sequence[Any]:
        """Returns the components of an element or batch that is to be enqueued."""
        values = self._structure.flatten(self._structure.element(vals))
        refuse_sparse(values, self)
        return values


class _SelectedCalls(GraphCalls):
    """Adds calls on one of several queues, which an index selects when a step runs."""

    def __init__(
        self, queues: Sequence[QueueBase], index: Tensor, describe: Callable[[], str]
    ) -> None:
        super().__init__(queues[0].graph, queues[0].ref, describe)
        self._index = index
        self._others = [queue.ref for queue in queues[1:]]

    def call(
        self,
        function: str,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        name: str,
        attributes: dict[str, Any] | None = None,
        **_: Any,
    ) -> Operation:
        return super().call(
            "queue.selected",
            [self._index, *inputs],
            outputs,
            name,
            {**(attributes or {}), "function": function},
            others=self._others,
        )


class _SelectedQueue(QueueBase):
    """One of several queues, selected when a step runs; has the attributes of the first."""

    def __init__(self, index: Any, queues: Sequence[QueueBase]) -> None:
        if not queues or not isinstance(queues, list | tuple):
            raise ValueError(f"expected a list of queues to select from, got {queues!r:.80}")
        first = queues[0]
        for queue in queues:
            if not isinstance(queue, QueueBase) or queue.is_eager:
                raise TypeError(f"expected graph queues to select from, got {queue!r}")
            if queue.dtypes != first.dtypes:
                raise TypeError(f"{queue!r} has {queue.dtypes}, but {first!r} has {first.dtypes}")
            if (queue.names, queue.shapes) != (first.names, first.shapes):
                raise ValueError(f"{queue!r} has other names or shapes than {first!r}")
        self._owner, self._graph, self._op = None, first.graph, first.op
        self._ref, self._structure, self._spec = first.ref, first._structure, first._spec
        chosen = (
            checked_count(self._graph.as_tensor(index))
            if isinstance(index, Symbolic)
            else self._graph.constant(as_integer(index, "which queue"), _INT32, on_host=True)
        )
        self._n_queues = len(queues)
        self._calls = _SelectedCalls(queues, chosen, self._describe())
        elements = replace(first._operations.elements, describe=self._describe())
        self._operations = QueueOperations(elements, self._calls, self._title)

    def _details(self) -> dict[str, Any]:
        return {"n_queues": self._n_queues} | super()._details()
