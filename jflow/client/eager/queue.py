"""Eager queues: plain Python puts and gets elements without a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from jflow.base.values import abstract, as_array, from_physical, to_physical, unknown_dim
from jflow.client.eager.executables import Build, Executables
from jflow.client.eager.streams import QueueReader, QueueWriter
from jflow.client.stateful.calls import GraphCalls
from jflow.client.stateful.queue import QueueElements, QueueOperations, as_integer
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.owners import EagerOwner
from jflow.compiler.graph.primitives import placeholder_p

_INT32 = np.dtype(np.int32)

_METHODS = {
    "queue.enqueue": "put",
    "queue.enqueue_many": "put_many",
    "queue.dequeue": "get",
}
"""What messages call operations that plain Python has other names for."""

Components = Sequence[Any]
"""The components of an element, or of a batch of elements."""


class EagerQueue:
    """The methods of an eager queue, on the components of its elements; see `QueueBase`.

    Args:
      owner: the connection.
      calls: adds operations to the queue's own graph, from which executables are made.
      elements: the components of an element.
      title: the prefix of operation names.

    Attributes:
      elements: as given.
    """

    def __init__(
        self, owner: EagerOwner, calls: GraphCalls, elements: QueueElements, title: str
    ) -> None:
        self.elements = elements
        self._calls = calls
        self._operations = QueueOperations(elements, calls, title)
        self._executables = Executables(owner, calls.graph, calls.describe)

    def put(self, values: Components, timeout: float | None = None) -> None:
        """Adds an element."""
        self.add("queue.enqueue", values, timeout)

    def put_many(self, values: Components, timeout: float | None = None) -> None:
        """Adds the rows of a batch."""
        self.add("queue.enqueue_many", values, timeout, is_batch=True)

    def start_put(self, values: Components, timeout: float | None = None) -> Future[Any]:
        """Starts a `put` without blocking."""
        build = self._adding("queue.enqueue", is_batch=False)
        return self._executables.start("put", build, self.arrays(values), timeout)

    def get(self, timeout: float | None = None) -> Components:
        """Takes an element."""
        return self.take("queue.dequeue", timeout)

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
        return self._executables.start("get", self._taking("queue.dequeue"), (), timeout)

    # Any operation, by the name of its kernel ----------------------------------------------------

    def add(
        self,
        function: str,
        values: Components,
        timeout: float | None = None,
        *,
        is_batch: bool = False,
    ) -> None:
        """Adds an element, or the rows of a batch."""
        arrays, build = self.arrays(values, is_batch=is_batch), self._adding(function, is_batch)
        self._executables.run(_method(function), build, arrays, timeout)

    def take(self, function: str, timeout: float | None = None) -> Components:
        """Takes an element, or reads one."""
        key, build = _method(function), self._taking(function)
        return self.logical_element(self._executables.run(key, build, (), timeout))

    def query(self, function: str, dtype: Any) -> Any:
        """A property of the queue, a scalar."""
        outputs = [abstract((), dtype)]
        return self._run(_method(function), function, outputs, {})[0][()]

    def change(self, function: str, attributes: dict[str, Any]) -> None:
        """Changes the queue."""
        given = ", ".join(f"{key}={value}" for key, value in attributes.items() if value)
        key = f"{_method(function)}({given})" if given else _method(function)
        self._run(key, function, [], attributes)

    def _run(
        self, key: str, function: str, outputs: list[Any], attributes: dict[str, Any]
    ) -> list[Any]:
        def build() -> tuple[Operation, list[Tensor]]:
            return self._calls.call(function, [], outputs, _method(function), attributes), []

        return self._executables.run(key, build, ())

    # Streams ------------------------------------------------------------------------------------

    def writer(self, flatten: Callable[[Any], Components], max_ahead_bytes: int) -> QueueWriter:
        """Returns a `QueueWriter`; `flatten` returns the components of an element."""
        build = self._adding("queue.enqueue_many", is_batch=True)
        return QueueWriter(
            lambda element: self.arrays(flatten(element)),
            lambda rows: self._executables.start("put_many", build, rows),
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
        elements = self.elements
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
            for array, component in zip(arrays, self.elements.components, strict=True)
        ]

    def _counts(self, n: Any, minimum: Any) -> list[Any]:
        """The largest and the smallest number of elements to take, as arrays to be fed."""
        wanted = as_integer(n, "the number of elements to dequeue")
        enough = as_integer(minimum, "the minimum number of elements")
        if wanted < 0:
            raise ValueError(
                f"cannot dequeue {wanted} elements from {self.elements.describe()}; expected 0 or "
                "more"
            )
        return [np.array(count, _INT32) for count in (wanted, enough if wanted else 0)]

    # Operations ---------------------------------------------------------------------------------

    def _adding(self, function: str, is_batch: bool) -> Build:
        """Returns what builds an operation that adds, whose values are fed."""

        def build() -> tuple[Any, list[Tensor]]:
            batch = [unknown_dim()] if is_batch else []
            fed = self._fed(*(one.aval(*batch) for one in self.elements.components))
            attributes = {"by_priority": True} if self.elements.by_priority else {}
            return self._calls.call(function, fed, [], "enqueue", attributes), fed

        return build

    def _taking(self, function: str) -> Build:
        """Returns what builds an operation that takes an element."""

        def build() -> tuple[Operation, list[Tensor]]:
            return self._calls.call(function, [], self.elements.avals(), "dequeue"), []

        return build

    def _get_counted(self, **attributes: Any) -> Build:
        """Returns what builds a dequeue of several elements, whose counts are fed."""

        def build() -> tuple[Operation, list[Tensor]]:
            fed = self._fed(abstract((), _INT32), abstract((), _INT32))
            taken = self._operations.dequeue_counted(fed, unknown_dim(), "dequeue_many", attributes)
            return taken[0].op, fed

        return build

    def _fed(self, *avals: Any) -> list[Tensor]:
        """Adds a placeholder for each abstract value."""
        return [
            self._calls.graph.add(placeholder_p, [], [aval], name="fed").outputs[0]
            for aval in avals
        ]


def _method(function: str) -> str:
    """What messages call an operation, given the name of its kernel."""
    return _METHODS.get(function, function.removeprefix("queue."))
