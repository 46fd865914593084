"""Queues in graph code and, inside `jflow.connect`, in plain Python."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jflow.errors import OutOfRangeError
from jflow.graph import Tensor
from jflow.graph.primitives import placeholder_p
from jflow.ops.elements import Part, Structure
from jflow.ops.live_steps import Build, LiveSteps
from jflow.ops.resource import Handle
from jflow.ops.sparse import refuse_sparse
from jflow.ops.streams import MAX_AHEAD_BYTES, QueueReader, QueueWriter
from jflow.resources import QueueSpec
from jflow.values import abstract, as_array, carry, is_known, may_be, restore, string, unknown_dim

_INT32 = np.dtype(np.int32)
_INT64 = np.dtype(np.int64)
_OPTIONAL = ("capacity_bytes", "seed")


class QueueBase(Handle):
    """A queue of elements, each made of one component or more.

    `dtypes` is a dtype, a sequence of them or any pytree of them, and `shapes` a shape for each in
    the same structure; `names` make the elements of a sequence dicts. What is enqueued has the
    structure of `dtypes`, and what is dequeued comes in it.

    Attempts are served in the order in which they come: one that has to wait holds up those of its
    direction behind it.
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
        self._by_priority = by_priority
        self._spec = QueueSpec(
            kind,
            components=tuple(part.component for part in structure.parts),
            names=structure.names,
            **{what: as_integer(value, what) for what, value in bounds.items()},
        )
        super().__init__("queue", self._spec.to_attributes(), shared_name, name)
        self._live = LiveSteps(self._owner, self._graph)

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
        return [part.dtype for part in self._structure.parts]

    @property
    def shapes(self) -> list[tuple[int | None, ...] | None]:
        """The shapes of the components; None where a size, or the whole shape, is not known."""
        return [part.shape for part in self._structure.parts]

    @property
    def names(self) -> list[str]:
        """The names of the components; an empty list if they have none."""
        return [*self._structure.names]

    # Operations -------------------------------------------------------------------------------

    def enqueue(self, vals: Any, name: str | None = None) -> Any:
        """An operation that adds an element; it waits while the queue is full.

        Of a live queue it is done at once, as by `put`, or as part of the `jflow.function` that it
        is in; that goes for all operations of a queue.

        Args:
          vals: the element. A list or tuple of one is the components of an element of one, as in
            TensorFlow; to `put` it is the component itself if `dtypes` is a single dtype.
          name: name of the operation.

        Raises:
          ValueError, TypeError: if the element has another structure, dtype or shape.
        """
        vals = self._structure.element(vals)
        if self._acts_at_once:
            return self.put(vals)
        return self._put("queue.enqueue", vals, name or f"{self._title}_enqueue")

    def enqueue_many(self, vals: Any, name: str | None = None) -> Any:
        """An operation that adds the rows of a batch one by one, each as soon as there is room.

        Args:
          vals: a batch of each component, in the structure that `enqueue` takes.
          name: name of the operation.

        Raises:
          ValueError, TypeError: if the batch has another structure, dtype or shape.
        """
        vals = self._structure.element(vals)
        if self._acts_at_once:
            return self.put_many(vals)
        return self._put("queue.enqueue_many", vals, name or f"{self._title}_enqueue_many")

    def dequeue(self, name: str | None = None) -> Any:
        """Tensors of an element, in the structure of the dtypes; it waits until there is one."""
        if self._acts_at_once:
            return self.get()
        return self._structure.unflatten(self._take_one(name or f"{self._title}_Dequeue"))

    def dequeue_many(self, n: Any, name: str | None = None) -> Any:
        """Tensors of a batch of `n` elements, stacked along a new first dimension.

        It takes elements as they come until it has `n`, and gives them back if it has to give up.

        Args:
          n: a number or a tensor of one.
          name: name of the operation.

        Raises:
          ValueError: if `n` is negative, or the queue has no shapes.
        """
        if self._acts_at_once:
            return self.get_many(n)
        return self._structure.unflatten(self._take(n, name or f"{self._title}_DequeueMany"))

    def dequeue_up_to(self, n: Any, name: str | None = None) -> Any:
        """As `dequeue_many`, but once the queue is closed fewer will do, one at least."""
        if self._acts_at_once:
            return self.get_up_to(n, minimum=n)
        name = name or f"{self._title}_DequeueUpTo"
        return self._structure.unflatten(self._take(n, name, up_to=True))

    def size(self, name: str | None = None) -> Any:
        """How many elements it holds, as an int32 scalar."""
        return self._ask("queue.size", _INT32, name or f"{self._title}_Size")

    def is_closed(self, name: str | None = None) -> Any:
        """Whether it is closed, as a boolean scalar."""
        return self._ask("queue.is_closed", np.dtype(bool), name or f"{self._title}_is_closed")

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Any:
        """An operation that closes the queue: nothing can be added, what is there can be taken.

        Args:
          cancel_pending_enqueues: whether enqueues that wait fail; else it waits for them.
          name: name of the operation.
        """
        cancels = bool(cancel_pending_enqueues)

        def build() -> tuple[Any, list[Tensor]]:
            attributes = {"cancel_pending_enqueues": cancels}
            title = name or f"{self._title}_Close"
            return self._act("queue.close", [], [], title, attributes), []

        if not self._acts_at_once:
            return build()[0]
        self._live.run(f"close {cancels}", build, ())
        return None

    # Plain Python -----------------------------------------------------------------------------

    def put(self, element: Any, timeout: float | None = None) -> None:
        """Adds an element to a live queue and returns when it is in.

        Args:
          element: NumPy or JAX arrays, numbers, text or bytes, in the structure of the dtypes.
          timeout: longest time for the call, in seconds, None for the connection's. With 0 it does
            not wait for room; getting ready for the first call has the connection's time.

        Raises:
          ValueError, TypeError: if the element has another structure, dtype or shape.
          CancelledError: if the queue is closed.
          DeadlineExceededError: if the time is over; the element is not in then.
        """
        self._live.run("put", self._putting("queue.enqueue"), self._arrays(element), timeout)

    def put_many(self, batch: Any, timeout: float | None = None) -> None:
        """Adds the rows of a batch, one by one as there is room. Raises as `put`."""
        arrays = self._arrays(batch, 1)
        self._live.run("put_many", self._putting("queue.enqueue_many", 1), arrays, timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Takes an element of a live queue: NumPy arrays in the structure of the dtypes.

        Args:
          timeout: longest time for the call, in seconds, None for the connection's. With 0 it does
            not wait for an element; getting ready for the first call has the connection's time.

        Raises:
          OutOfRangeError: if the queue is closed and empty.
          DeadlineExceededError: if the time is over; nothing is taken then.
        """
        return self._element(self._live.run("get", self._taking_one, (), timeout))

    def get_many(self, n: int, timeout: float | None = None) -> Any:
        """Takes a batch of `n` elements, stacked. Raises as `get`."""
        counts = self._counts(n, n)
        return self._element(self._live.run("get many", self._taking(), counts, timeout))

    def get_up_to(self, n: int, minimum: int = 1, timeout: float | None = None) -> Any:
        """Takes a batch of what is there: up to `n` elements, waiting until there are `minimum`.

        Raises:
          OutOfRangeError: if the queue is closed and empty.
          DeadlineExceededError: if the time is over; nothing is taken then.
        """
        counts = self._counts(n, minimum)
        taking = self._taking(up_to=True)
        return self._element(self._live.run("get up to", taking, counts, timeout))

    async def put_async(self, element: Any, timeout: float | None = None) -> None:
        """As `put`, for an event loop; if it is cancelled while it waits, the element is not in."""
        arrays = self._arrays(element)
        started = self._live.start("put", self._putting("queue.enqueue"), arrays, timeout)
        await asyncio.wrap_future(started)

    async def get_async(self, timeout: float | None = None) -> Any:
        """As `get`, for an event loop; if it is cancelled while it waits, nothing is taken.

        An element that is on its way already when the task is cancelled is lost: with a `timeout`
        instead it is not.
        """
        started = self._live.start("get", self._taking_one, (), timeout)
        arrays: list[Any] = await asyncio.wrap_future(started)
        return self._element(arrays)

    def writer(self, max_ahead_bytes: int = MAX_AHEAD_BYTES) -> QueueWriter:
        """What puts many elements without a round trip for each; to be used as a block.

        Args:
          max_ahead_bytes: how much may be on its way before `put` waits.
        """
        put_many = self._putting("queue.enqueue_many", 1)
        return QueueWriter(
            self._arrays,
            lambda batch: self._live.start("put_many", put_many, batch),
            max_ahead_bytes,
        )

    def reader(self, ahead: int = 64) -> QueueReader:
        """What takes elements ahead of their use, up to `ahead` at a time; an iterator and a block.

        Where none may be lost, iterate the queue itself.
        """
        if ahead < 1:
            raise ValueError(f"a reader takes at least one element at a time, got {ahead}")
        counts, taking = self._counts(ahead, 1), self._taking(up_to=True)
        return QueueReader(lambda: self._live.start("get up to", taking, counts), self._element)

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

    # Helpers ----------------------------------------------------------------------------------

    def _put(self, function: str, vals: Any, name: str) -> Any:
        """Adds an enqueue; gives the operation in graph code."""
        batch = function.endswith("_many")
        tensors: list[Tensor] = []
        values = self._structure.flatten(vals)
        refuse_sparse(values, repr(self))
        for part, value in zip(self._structure.parts, values, strict=True):
            is_priority = self._by_priority and not tensors
            tensor = self._operand(value, _widened(value) if is_priority else part.dtype)
            _check_shape(self, part, tensor.shape, batch)
            tensors.append(tensor)
        if batch:
            _check_rows(self, tensors)
        attributes = {"by_priority": True} if self._by_priority else {}
        added = self._act(function, tensors, [], name, attributes)
        return None if self._is_traced else added

    def _take_one(self, name: str) -> Sequence[Any]:
        avals = [part.aval() for part in self._structure.parts]
        taken: Sequence[Any] = self._act("queue.dequeue", [], avals, name).outputs
        return taken

    def _take(self, n: Any, name: str, **attributes: Any) -> Sequence[Any]:
        counts = []
        if getattr(n, "to_tensor", None) is not None or isinstance(n, jax.core.Tracer):
            counts = [checked_count(self._operand(n, n.dtype))]
        else:
            attributes["count"] = as_integer(n, "how many elements to dequeue")
            if n < 0:
                raise ValueError(f"cannot dequeue {n} elements from {self!r}")
        is_exact = not counts and not attributes.get("up_to") and n > 0
        size = attributes["count"] if is_exact else unknown_dim()
        return self._take_counted(counts, size, name, attributes)

    def _take_counted(
        self, counts: Sequence[Any], size: Any, name: str, attributes: dict[str, Any]
    ) -> Sequence[Any]:
        if not self._spec.is_batchable:
            raise ValueError(
                f"{self!r} has components whose shapes are not known, so its elements cannot be "
                "stacked; give it shapes, or use a PaddingFIFOQueue"
            )
        avals = [part.aval(size) for part in self._structure.parts]
        taken = self._act("queue.dequeue_many", counts, avals, name, attributes)
        outputs: Sequence[Any] = taken.outputs
        return outputs

    def _ask(self, function: str, dtype: Any, name: str) -> Any:
        def build() -> tuple[Any, list[Tensor]]:
            return self._act(function, [], [abstract((), dtype)], name), []

        if not self._acts_at_once:
            return build()[0].outputs[0]
        return self._live.run(function, build, ())[0][()]

    def _arrays(self, value: Any, n_batch_dims: int = 0) -> list[Any]:
        """The arrays that carry an element, or a batch of them."""
        arrays = []
        for part, leaf in zip(self._structure.parts, self._structure.flatten(value), strict=True):
            array = as_array(leaf, part.dtype, on_host=True)
            _check_shape(self, part, array.shape, n_batch_dims > 0)
            arrays.append(carry(array))
        if n_batch_dims:
            _check_rows(self, arrays)
        return arrays

    def _element(self, arrays: Sequence[Any]) -> Any:
        """The element that arrays carry."""
        dtypes = [part.dtype for part in self._structure.parts]
        return self._structure.unflatten(
            [restore(array, dtype) for array, dtype in zip(arrays, dtypes, strict=True)]
        )

    def _putting(self, function: str, n_batch_dims: int = 0) -> Build:
        """What makes the step of an enqueue of arrays that are fed."""

        def build() -> tuple[Any, list[Tensor]]:
            batch = [unknown_dim()] * n_batch_dims
            fed = [
                self._graph.add(placeholder_p, [], [part.aval(*batch)], name="put").outputs[0]
                for part in self._structure.parts
            ]
            return self._put(function, self._structure.unflatten(fed), "enqueue"), fed

        return build

    def _counts(self, n: Any, minimum: Any) -> list[Any]:
        """How many elements to take, and how many will do, as they are fed."""
        wanted = as_integer(n, "how many elements to dequeue")
        enough = as_integer(minimum, "how many elements will do")
        if wanted < 0:
            raise ValueError(f"cannot dequeue {wanted} elements from {self!r}")
        return [np.array(count, _INT32) for count in (wanted, enough if wanted else 0)]

    def _taking(self, **attributes: Any) -> Build:
        """What makes the step of a dequeue of several elements, the counts of which are fed."""

        def build() -> tuple[Any, list[Tensor]]:
            fed = [
                self._graph.add(placeholder_p, [], [abstract((), _INT32)], name=name).outputs[0]
                for name in ("count", "minimum")
            ]
            return self._take_counted(fed, unknown_dim(), "dequeue_many", attributes)[0].op, fed

        return build

    def _taking_one(self) -> tuple[Any, list[Tensor]]:
        return self._take_one("dequeue")[0].op, []


class _SelectedQueue(QueueBase):
    """One of several queues; for all but its number it looks like the first of them."""

    def __init__(self, index: Any, queues: Sequence[QueueBase]) -> None:
        if not queues or not isinstance(queues, list | tuple):
            raise ValueError(f"expected a list of queues to select from, got {queues!r:.80}")
        first, *others = queues
        for queue in queues:
            if not isinstance(queue, QueueBase) or queue.is_live:
                raise TypeError(f"only queues of graph code can be selected from, got {queue!r}")
            if queue.dtypes != first.dtypes:
                raise TypeError(f"{queue!r} has {queue.dtypes}, {first!r} has {first.dtypes}")
            if (queue.names, queue.shapes) != (first.names, first.shapes):
                raise ValueError(f"{queue!r} has other names or shapes than {first!r}")
        self.__dict__.update(vars(first))
        self._index = (
            checked_count(self._graph.as_tensor(index))
            if getattr(index, "to_tensor", None) is not None
            else self._graph.constant(as_integer(index, "which queue"), _INT32, on_host=True)
        )
        self._others = [queue.ref for queue in others]

    def _details(self) -> dict[str, Any]:
        return {"n_queues": 1 + len(self._others)} | super()._details()

    def _act(
        self,
        function: str,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        name: str,
        attributes: dict[str, Any] | None = None,
    ) -> Any:
        return self._call(
            "queue.selected",
            [self._index, *inputs],
            outputs,
            name,
            attributes={**(attributes or {}), "function": function},
            others=self._others,
        )


def as_integer(value: Any, what: str) -> Any:
    """A number of the user's, of Python or NumPy; None stays where it may be left out.

    Raises:
      TypeError: if it is no integer.
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if value is None and what in _OPTIONAL:
        return None
    raise TypeError(f"{what} is an integer, got {value!r:.80}")


def checked_count(count: Tensor) -> Tensor:
    """The tensor, if it can say how many elements to take. Raises TypeError if not."""
    is_integer = count.dtype != string and jax.dtypes.issubdtype(count.dtype, np.integer)
    if not is_integer or not may_be((), count.shape):
        raise TypeError(f"how many elements to take is an integer scalar, got {count!r}")
    return count


def _widened(value: Any) -> Any:
    """The dtype to ask of a priority: that of a tensor of integers, which the host widens."""
    dtype: Any = value.dtype if getattr(value, "to_tensor", None) is not None else None
    is_number = isinstance(dtype, np.dtype) and jax.dtypes.issubdtype(dtype, np.integer)
    return dtype if is_number and np.can_cast(dtype, _INT64) else _INT64


def _check_shape(queue: QueueBase, part: Part, shape: Any, is_batch: bool) -> None:
    """Refuses what cannot be a value of a component, as far as that is known."""
    if shape is None or part.shape is None:
        return
    wanted = (None, *part.shape) if is_batch else part.shape
    if not may_be(wanted, shape):
        raise ValueError(
            f"expected {'a batch' if is_batch else 'an element'} of shape {wanted} for {queue!r}, "
            f"got {tuple(shape)}"
        )


def _check_rows(queue: QueueBase, batches: Sequence[Any]) -> None:
    """Refuses components of a batch that cannot have the same number of rows."""
    shapes = [batch.shape for batch in batches]
    for i, shape in enumerate(shapes):
        if shape == ():
            raise ValueError(
                f"a batch has a first dimension, its rows, but component {i} for {queue!r} is a "
                "scalar"
            )
    sizes = {i: shape[0] for i, shape in enumerate(shapes) if shape and is_known(shape[0])}
    for i, size in sizes.items():
        first = next(iter(sizes))
        if size != sizes[first]:
            raise ValueError(
                f"components of a batch for {queue!r} need the same number of rows: component {i} "
                f"has {size}, component {first} has {sizes[first]}"
            )
