"""Queues in graph code and, inside `jflow.connect`, in plain Python."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jflow.eager import EagerOperations, EagerQueue, QueueReader, QueueWriter, TracedCalls
from jflow.eager.streams import MAX_AHEAD_BYTES
from jflow.errors import OutOfRangeError
from jflow.graph import Operation, ResourceRef, Tensor
from jflow.ops.sparse import refuse_sparse
from jflow.resources.queue import QueueSpec
from jflow.stateful import GraphCalls, Handle, QueueOperations, Structure
from jflow.stateful.queue import QueueElements, as_integer, checked_count
from jflow.xla.internals import is_tracing

_INT32 = np.dtype(np.int32)


class QueueBase(Handle):
    """A queue of elements, each made of one component or more.

    `dtypes` is a dtype, a sequence of them or any pytree of them, and `shapes` a shape for each in
    the same structure; `names` make the elements of a sequence dicts. What is enqueued has the
    structure of `dtypes`, and what is dequeued comes in it.

    Attempts are served in order: one that blocks also blocks the later attempts of its direction.
    """

    def __init__(
        self,
        kind: str,
        structure: Structure,
        shared_name: str | None,
        name: str,
        bounds: dict[str, int | None],
        *,
        by_priority: bool = False,
    ) -> None:
        self._structure = structure
        self._spec = QueueSpec(
            kind,
            components=tuple(component.physical for component in structure.components),
            names=structure.names,
            **{what: as_integer(value, what) for what, value in bounds.items()},
        )
        super().__init__("queue", self._spec, shared_name, name)
        self._elements = QueueElements(
            structure.components,
            self._describe(),
            by_priority,
            self._spec.is_batchable,
        )
        self._operations: QueueOperations | EagerOperations
        self._eager: EagerQueue | None = None
        if self._owner is None:
            self._operations = QueueOperations(self._elements, self._calls, self._title)
        else:
            self._eager = EagerQueue(self._owner, self._calls, self._elements, self._title)
            calls = TracedCalls(self._ref, self._describe())
            traced = QueueOperations(self._elements, calls, self._title)
            self._operations = EagerOperations(self._eager, traced)

    @staticmethod
    def from_list(index: Any, queues: Sequence[QueueBase]) -> QueueBase:
        """The one of several queues whose number is known when a step runs.

        Args:
          index: an integer, or a tensor of one.
          queues: graph queues of one device, whose elements are alike.

        Raises:
          TypeError: if they are no such queues, or their dtypes differ.
          ValueError: if there are none, or names or shapes differ.
        """
        return _SelectedQueue(index, queues)

    @property
    def dtypes(self) -> list[Any]:
        """The dtypes of the components."""
        return [component.dtype for component in self._structure.components]

    @property
    def shapes(self) -> list[tuple[int | None, ...] | None]:
        """The shapes of the components; None where a size, or the whole shape, is not known."""
        return [component.shape for component in self._structure.components]

    @property
    def names(self) -> list[str]:
        """The names of the components; an empty list if they have none."""
        return [*self._structure.names]

    # Operations -------------------------------------------------------------------------------

    def enqueue(self, vals: Any, name: str | None = None) -> Any:
        """An operation that adds an element; it waits while the queue is full.

        On an eager queue it is done at once, as by `put`, or becomes part of the `jflow.function`
        around it; that holds for all operations of a queue.

        Args:
          vals: the element. A list or tuple of one is the components of an element of one, as in
            TensorFlow; to `put` it is the component itself if `dtypes` is a single dtype.
          name: name of the operation.

        Raises:
          ValueError, TypeError: if the element has another structure, dtype or shape.
        """
        return self._operations.enqueue(self._operands(vals), name)

    def enqueue_many(self, vals: Any, name: str | None = None) -> Any:
        """An operation that adds the rows of a batch one by one, each as soon as there is room.

        Args:
          vals: a batch of each component, in the structure that `enqueue` takes.
          name: name of the operation.

        Raises:
          ValueError, TypeError: if the batch has another structure, dtype or shape.
        """
        return self._operations.enqueue_many(self._operands(vals), name)

    def dequeue(self, name: str | None = None) -> Any:
        """Tensors of an element, in the structure of the dtypes; it waits until there is one."""
        return self._structure.unflatten(self._operations.dequeue(name))

    def dequeue_many(self, n: Any, name: str | None = None) -> Any:
        """Tensors of a batch of `n` elements, stacked along a new first dimension.

        It takes elements as they come until it has `n`, and gives them back if it has to give up.

        Args:
          n: a number or a tensor of one.
          name: name of the operation.

        Raises:
          ValueError: if `n` is negative, or the queue has no shapes.
        """
        return self._structure.unflatten(self._operations.dequeue_many(n, name))

    def dequeue_up_to(self, n: Any, name: str | None = None) -> Any:
        """As `dequeue_many`, but once the queue is closed fewer are enough, at least one."""
        return self._structure.unflatten(self._operations.dequeue_up_to(n, name))

    def size(self, name: str | None = None) -> Any:
        """How many elements it holds, as an int32 scalar."""
        return self._operations.size(name)

    def is_closed(self, name: str | None = None) -> Any:
        """Whether it is closed, as a boolean scalar."""
        return self._operations.is_closed(name)

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Any:
        """An operation that closes the queue: nothing can be added, what is there can be taken.

        Args:
          cancel_pending_enqueues: whether enqueues that wait fail; else it waits for them.
          name: name of the operation.
        """
        return self._operations.close(bool(cancel_pending_enqueues), name)

    # Plain Python -----------------------------------------------------------------------------

    def put(self, element: Any, timeout: float | None = None) -> None:
        """Adds an element to an eager queue and returns when it is in.

        Args:
          element: NumPy or JAX arrays, numbers, text or bytes, in the structure of the dtypes.
          timeout: longest time for the call, in seconds, None for the connection's. With 0 it does
            not wait for room; getting ready for the first call has the connection's time.

        Raises:
          ValueError, TypeError: if the element has another structure, dtype or shape.
          CancelledError: if the queue is closed.
          DeadlineExceededError: if the time is over; the element is not in then.
        """
        self._plain.put(self._structure.flatten(element), timeout)

    def put_many(self, batch: Any, timeout: float | None = None) -> None:
        """Adds the rows of a batch, one by one as there is room. Raises as `put`."""
        self._plain.put_many(self._structure.flatten(batch), timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Takes an element of an eager queue: NumPy arrays in the structure of the dtypes.

        Args:
          timeout: longest time for the call, in seconds, None for the connection's. With 0 it does
            not wait for an element; getting ready for the first call has the connection's time.

        Raises:
          OutOfRangeError: if the queue is closed and empty.
          DeadlineExceededError: if the time is over; nothing is taken then.
        """
        return self._structure.unflatten(self._plain.get(timeout))

    def get_many(self, n: int, timeout: float | None = None) -> Any:
        """Takes a batch of `n` elements, stacked. Raises as `get`."""
        return self._structure.unflatten(self._plain.get_many(n, timeout))

    def get_up_to(self, n: int, minimum: int = 1, timeout: float | None = None) -> Any:
        """Takes a batch of up to `n` available elements; blocks until there are `minimum`.

        Raises:
          OutOfRangeError: if the queue is closed and empty.
          DeadlineExceededError: if the time is over; nothing is taken then.
        """
        return self._structure.unflatten(self._plain.get_up_to(n, minimum, timeout))

    async def put_async(self, element: Any, timeout: float | None = None) -> None:
        """As `put`, for an event loop; if it is cancelled while it waits, the element is not in."""
        started = self._plain.start_put(self._structure.flatten(element), timeout)
        await asyncio.wrap_future(started)

    async def get_async(self, timeout: float | None = None) -> Any:
        """As `get`, for an event loop; if it is cancelled while it waits, nothing is taken.

        An element that is already on its way when the task is cancelled is lost; with a `timeout`
        instead none is lost.
        """
        plain = self._plain
        arrays = await asyncio.wrap_future(plain.start_get(timeout))
        return self._structure.unflatten(plain.logical_element(arrays))

    def writer(self, max_ahead_bytes: int = MAX_AHEAD_BYTES) -> QueueWriter:
        """A writer that puts many elements without a round trip for each; used as a block.

        Args:
          max_ahead_bytes: how much may be on its way before `put` blocks.
        """
        return self._plain.writer(self._structure.flatten, max_ahead_bytes)

    def reader(self, ahead: int = 64) -> QueueReader:
        """A reader that takes up to `ahead` elements in advance; an iterator and a block.

        Elements taken in advance are lost when it is closed: to lose none, iterate the queue.
        """
        if ahead < 1:
            raise ValueError(f"a reader takes at least one element at a time, got {ahead}")
        return self._plain.reader(self._structure.unflatten, ahead)

    def __iter__(self) -> Iterator[Any]:
        """Takes one element after the other until the queue is closed and empty."""
        while True:
            try:
                element = self.get()
            except OutOfRangeError:
                return
            yield element

    def _details(self) -> dict[str, Any]:
        found: dict[str, Any] = {"capacity": self._spec.capacity}
        if self.names:
            found["names"] = self.names
        dtypes = ", ".join(dtype.name for dtype in self.dtypes)
        return found | {"dtypes": f"[{dtypes}]", "shapes": self.shapes}

    @property
    def _plain(self) -> EagerQueue:
        """The queue as plain Python uses it. Raises RuntimeError in code that builds or traces."""
        if is_tracing():
            raise RuntimeError(
                "JAX traces the function around this: use enqueue() and dequeue() there, because "
                "what plain Python takes now would be a constant of the function"
            )
        if self._eager is None:
            raise RuntimeError(
                "this is graph code: run the operation in a session, or make the queue inside "
                "`with jflow.connect(target):` to use it from plain Python"
            )
        return self._eager

    def _operands(self, vals: Any) -> Sequence[Any]:
        """The components of what is given to an enqueue."""
        values = self._structure.flatten(self._structure.element(vals))
        refuse_sparse(values, self)
        return values


class _SelectedCalls:
    """Adds calls on one of several queues, by an index that is known when a step runs."""

    def __init__(self, calls: GraphCalls, index: Tensor, others: Sequence[ResourceRef]) -> None:
        self._calls = calls
        self._index = index
        self._others = others

    def operand(self, value: Any, dtype: Any) -> Any:
        return self._calls.operand(value, dtype)

    def call(
        self,
        function: str,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        name: str,
        attributes: dict[str, Any] | None = None,
    ) -> Operation:
        return self._calls.call(
            "queue.selected",
            [self._index, *inputs],
            outputs,
            name,
            {**(attributes or {}), "function": function},
            others=self._others,
        )


class _SelectedQueue(QueueBase):
    """One of several queues, with the attributes of the first."""

    def __init__(self, index: Any, queues: Sequence[QueueBase]) -> None:
        if not queues or not isinstance(queues, list | tuple):
            raise ValueError(f"expected a list of queues to select from, got {queues!r:.80}")
        first, *others = queues
        for queue in queues:
            if not isinstance(queue, QueueBase) or queue.is_eager:
                raise TypeError(f"only queues of graph code can be selected from, got {queue!r}")
            if queue.dtypes != first.dtypes:
                raise TypeError(f"{queue!r} has {queue.dtypes}, {first!r} has {first.dtypes}")
            if (queue.names, queue.shapes) != (first.names, first.shapes):
                raise ValueError(f"{queue!r} has other names or shapes than {first!r}")
        self.__dict__.update(vars(first))
        chosen = (
            checked_count(self._graph.as_tensor(index))
            if getattr(index, "to_tensor", None) is not None
            else self._graph.constant(as_integer(index, "which queue"), _INT32, on_host=True)
        )
        self._n_queues = len(queues)
        calls = GraphCalls(self._graph, self._ref, self._describe())
        selected = _SelectedCalls(calls, chosen, [queue.ref for queue in others])
        elements = replace(self._elements, describe=self._describe())
        self._operations = QueueOperations(elements, selected, self._title)

    def _details(self) -> dict[str, Any]:
        return {"n_queues": self._n_queues} | super()._details()
