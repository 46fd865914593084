"""Eager queues: plain Python puts and gets elements without a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from jflow.eager.executables import Build, Executables
from jflow.eager.streams import QueueReader, QueueWriter
from jflow.graph import Operation, Tensor
from jflow.graph.owners import EagerOwner
from jflow.graph.primitives import placeholder_p
from jflow.stateful.calls import GraphCalls
from jflow.stateful.queue import QueueElements, QueueOperations, as_integer
from jflow.values import abstract, as_array, from_physical, to_physical, unknown_dim

_INT32 = np.dtype(np.int32)

Components = Sequence[Any]
"""The components of an element, or of a batch of elements."""


class EagerQueue:
    """The methods of an eager queue, on the components of its elements; see `QueueBase`.

    Args:
      owner: the connection.
      calls: adds operations to the queue's own graph, from which executables are made.
      elements: the components of an element.
      title: the prefix of operation names.
    """

    def __init__(
        self, owner: EagerOwner, calls: GraphCalls, elements: QueueElements, title: str
    ) -> None:
        self._graph = calls.graph
        self._elements = elements
        self._operations = QueueOperations(elements, calls, title)
        self._executables = Executables(owner, calls.graph, calls.describe)

    def put(self, values: Components, timeout: float | None = None) -> None:
        """Adds an element."""
        self._executables.run("put", self._build_put, self.arrays(values), timeout)

    def put_many(self, values: Components, timeout: float | None = None) -> None:
        """Adds the rows of a batch."""
        arrays = self.arrays(values, is_batch=True)
        self._executables.run("put_many", self._build_put_many, arrays, timeout)

    def start_put(self, values: Components, timeout: float | None = None) -> Future[Any]:
        """Starts a `put` without blocking."""
        return self._executables.start("put", self._build_put, self.arrays(values), timeout)

    def get(self, timeout: float | None = None) -> Components:
        """Takes an element."""
        return self.logical_element(self._executables.run("get", self._build_get, (), timeout))

    def get_many(self, n: Any, timeout: float | None = None) -> Components:
        """Takes a batch of `n` elements."""
        counts = self._counts(n, n)
        return self.logical_element(
            self._executables.run("get_many", self._get_counted(), counts, timeout)
        )

    def get_up_to(self, n: Any, minimum: Any, timeout: float | None = None) -> Components:
        """Takes a batch of `minimum` to `n` elements."""
        counts = self._counts(n, minimum)
        build = self._get_counted(up_to=True)
        return self.logical_element(self._executables.run("get_up_to", build, counts, timeout))

    def start_get(self, timeout: float | None = None) -> Future[list[Any]]:
        """Starts a `get` without blocking; the result is arrays, for `logical_element`."""
        return self._executables.start("get", self._build_get, (), timeout)

    def size(self) -> Any:
        """The number of elements in the queue, an int32 scalar."""

        def build() -> tuple[Operation, list[Tensor]]:
            return self._operations.size().op, []

        return self._executables.run("size", build, ())[0][()]

    def is_closed(self) -> Any:
        """Whether the queue is closed, a bool scalar."""

        def build() -> tuple[Operation, list[Tensor]]:
            return self._operations.is_closed().op, []

        return self._executables.run("is_closed", build, ())[0][()]

    def close(self, cancel_pending_enqueues: bool) -> None:
        """Closes the queue."""

        def build() -> tuple[Any, list[Tensor]]:
            return self._operations.close(cancel_pending_enqueues), []

        key = "close(cancel_pending_enqueues=True)" if cancel_pending_enqueues else "close"
        self._executables.run(key, build, ())

    def writer(self, flatten: Callable[[Any], Components], max_ahead_bytes: int) -> QueueWriter:
        """Returns a `QueueWriter`; `flatten` returns the components of an element."""
        return QueueWriter(
            lambda element: self.arrays(flatten(element)),
            lambda rows: self._executables.start("put_many", self._build_put_many, rows),
            max_ahead_bytes,
        )

    def reader(self, unflatten: Callable[[Components], Any], ahead: int) -> QueueReader:
        """Returns a `QueueReader`; `unflatten` returns an element of its components."""
        counts, build = self._counts(ahead, 1), self._get_counted(up_to=True)
        return QueueReader(
            lambda: self._executables.start("get_up_to", build, counts),
            lambda arrays: unflatten(self.logical_element(arrays)),
        )

    # Elements ---------------------------------------------------------------------------------

    def arrays(self, values: Components, *, is_batch: bool = False) -> list[Any]:
        """Converts the components of an element or batch to arrays in physical form, to be fed."""
        elements = self._elements
        arrays = []
        for component, value in zip(elements.components, values, strict=True):
            array = as_array(value, component.dtype, on_host=True)
            elements.check_shape(component, array.shape, is_batch)
            arrays.append(to_physical(array))
        if is_batch:
            elements.check_rows(arrays)
        return arrays

    def logical_element(self, arrays: Sequence[Any]) -> list[Any]:
        """Converts fetched arrays from their physical form to components."""
        return [
            from_physical(array, component.dtype)
            for array, component in zip(arrays, self._elements.components, strict=True)
        ]

    def _counts(self, n: Any, minimum: Any) -> list[Any]:
        """The largest and the smallest number of elements to take, as arrays to be fed."""
        wanted = as_integer(n, "the number of elements to dequeue")
        enough = as_integer(minimum, "the minimum number of elements")
        if wanted < 0:
            raise ValueError(
                f"cannot dequeue {wanted} elements from {self._elements.describe()}; expected 0 or "
                "more"
            )
        return [np.array(count, _INT32) for count in (wanted, enough if wanted else 0)]

    # Operations ---------------------------------------------------------------------------------

    def _build_put(self) -> tuple[Any, list[Tensor]]:
        fed = self._fed(*self._elements.avals())
        return self._operations.enqueue(fed, "enqueue"), fed

    def _build_put_many(self) -> tuple[Any, list[Tensor]]:
        n_rows = unknown_dim()
        fed = self._fed(*(component.aval(n_rows) for component in self._elements.components))
        return self._operations.enqueue_many(fed, "enqueue"), fed

    def _build_get(self) -> tuple[Operation, list[Tensor]]:
        return self._operations.dequeue("dequeue")[0].op, []

    def _get_counted(self, **attributes: Any) -> Build:
        """Returns what builds a dequeue of several elements, whose counts are fed."""

        def build() -> tuple[Operation, list[Tensor]]:
            fed = self._fed(abstract((), _INT32), abstract((), _INT32))
            taken = self._operations.dequeue_counted(fed, unknown_dim(), "dequeue_many", attributes)
            return taken[0].op, fed

        return build

    def _fed(self, *avals: Any) -> list[Tensor]:
        """Adds a placeholder for each abstract value."""
        return [self._graph.add(placeholder_p, [], [aval], name="fed").outputs[0] for aval in avals]
