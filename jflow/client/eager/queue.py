"""Eager queues: operations run immediately, or are bound as equations while JAX traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jflow.base.packing import pack
from jflow.base.values import (
    AbstractValue,
    HostArray,
    abstract,
    as_array,
    from_physical,
    string,
    to_physical,
    unknown_dim,
)
from jflow.client.eager.executables import Executables, FedOperation
from jflow.client.eager.streams import QueueReader, QueueWriter
from jflow.client.stateful.calls import GraphCalls
from jflow.client.stateful.queue import (
    DEQUEUE_UP_TO,
    ENQUEUE_MANY,
    QueueElements,
    QueueOperation,
    QueueOperations,
    as_integer,
)
from jflow.compiler.graph import ResourceRef, Tensor, origin
from jflow.compiler.graph.owners import EagerOwner
from jflow.compiler.graph.packing import has_tensors, stacked
from jflow.compiler.graph.primitives import host_p, placeholder_p
from jflow.plan.xla.internals import is_tracing

_INT32 = np.dtype(np.int32)

Components = Sequence[Any]
"""The components of an element, or of a batch of elements."""


class EagerQueue(QueueOperations):
    """The operations of an eager queue, which work on the components of elements; see `QueueBase`.

    Operations of `QueueOperations` run immediately and ignore names; while JAX traces they are
    bound as equations. The others always run immediately. Each kind of operation is an operation of
    the queue's own graph, which is compiled once.

    Args:
      owner: the connection, which runs the operations.
      calls: adds operations to the queue's own graph.
      traced: binds operations while JAX traces.
      elements: the components of an element.
      title: the prefix of operation names.
    """

    def __init__(
        self,
        owner: EagerOwner,
        calls: GraphCalls,
        traced: TracedCalls,
        elements: QueueElements,
        title: str,
    ) -> None:
        super().__init__(elements, traced, title)
        self._graph = calls.graph
        self._in_graph = QueueOperations(elements, calls, title)
        self._executables = Executables(owner, calls.graph, calls.describe)

    # At once, or in the function that JAX traces ------------------------------------------------

    def enqueue(
        self, operation: QueueOperation, values: Components, name: str | None = None
    ) -> Any:
        if is_tracing():
            return super().enqueue(operation, values, name)
        return self.put(operation, values)

    def dequeue(self, operation: QueueOperation, name: str | None = None) -> Components:
        return super().dequeue(operation, name) if is_tracing() else self.get(operation)

    def dequeue_many(
        self, operation: QueueOperation, n: Any, name: str | None = None
    ) -> Components:
        if is_tracing():
            return super().dequeue_many(operation, n, name)
        return self.get_many(operation, n, n)

    def query(self, operation: QueueOperation, dtype: Any, name: str | None = None) -> Any:
        if is_tracing():
            return super().query(operation, dtype, name)

        def build() -> Any:
            return self._in_graph.query(operation, dtype, operation.kernel_name).op, []

        return self._executables.run_operation(operation.method, build, ())[0][()]

    def change(
        self, operation: QueueOperation, attributes: dict[str, Any], name: str | None = None
    ) -> Any:
        if is_tracing():
            return super().change(operation, attributes, name)

        def build() -> Any:
            return self._in_graph.change(operation, attributes, operation.kernel_name), []

        flags = ", ".join(f"{key}={value}" for key, value in attributes.items() if value)
        self._executables.run_operation(
            f"{operation.method}({flags})" if flags else operation.method, build
        )
        return None

    # At once ------------------------------------------------------------------------------------

    def put(
        self, operation: QueueOperation, values: Components, timeout: float | None = None
    ) -> None:
        """Enqueues an element, or the rows of a batch."""
        arrays = self.arrays(values, is_batch=operation.is_batch)
        build = partial(self._build_enqueue, operation)
        self._executables.run_operation(operation.method, build, arrays, timeout)

    def start_put(
        self, operation: QueueOperation, values: Components, timeout: float | None = None
    ) -> Future[Any]:
        """Starts a `put` without blocking."""
        build = partial(self._build_enqueue, operation)
        return self._executables.start(operation.method, build, self.arrays(values), timeout)

    def get(self, operation: QueueOperation, timeout: float | None = None) -> Components:
        """Dequeues an element and returns its components."""
        build = partial(self._build_dequeue, operation)
        return self.logical_element(
            self._executables.run_operation(operation.method, build, (), timeout)
        )

    def start_get(
        self, operation: QueueOperation, timeout: float | None = None
    ) -> Future[list[Any]]:
        """Starts a `get` without blocking; `logical_element` converts its result."""
        build = partial(self._build_dequeue, operation)
        return self._executables.start(operation.method, build, (), timeout)

    def get_many(
        self,
        operation: QueueOperation,
        n: Any,
        minimum: Any,
        timeout: float | None = None,
    ) -> Components:
        """Dequeues `minimum` to `n` elements."""
        counts, build = self._counts(n, minimum), partial(self._build_dequeue_many, operation)
        return self.logical_element(
            self._executables.run_operation(operation.method, build, counts, timeout)
        )

    def writer(self, flatten: Callable[[Any], Components], max_ahead_bytes: int) -> QueueWriter:
        """Returns a `QueueWriter`; `flatten` converts an element to its components."""
        method, build = ENQUEUE_MANY.method, partial(self._build_enqueue, ENQUEUE_MANY)
        return QueueWriter(
            lambda element: self.arrays(flatten(element)),
            lambda rows: self._executables.start(method, build, rows),
            max_ahead_bytes,
        )

    def reader(self, unflatten: Callable[[Components], Any], ahead: int) -> QueueReader:
        """Returns a `QueueReader`; `unflatten` makes an element from its components."""
        method, build = DEQUEUE_UP_TO.method, partial(self._build_dequeue_many, DEQUEUE_UP_TO)
        counts = self._counts(ahead, 1)
        return QueueReader(
            lambda: self._executables.start(method, build, counts),
            lambda arrays: unflatten(self.logical_element(arrays)),
        )

    # Elements ---------------------------------------------------------------------------------

    def arrays(self, values: Components, *, is_batch: bool = False) -> list[Any]:
        """Converts the components of an element or batch to physical arrays for feeding."""
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
        """Converts fetched physical arrays to the components of an element."""
        return [
            from_physical(array, component.dtype)
            for array, component in zip(arrays, self.elements.components, strict=True)
        ]

    def _counts(self, n: Any, minimum: Any) -> list[Any]:
        """Returns the maximal and minimal numbers of elements to dequeue, as arrays for feeding."""
        maximum = as_integer(n, "the number of elements to dequeue")
        lower_bound = as_integer(minimum, "the minimum number of elements")
        if maximum < 0:
            raise ValueError(
                f"cannot dequeue {maximum} elements from {self.elements.describe()}; expected 0 or "
                "more"
            )
        return [np.array(count, _INT32) for count in (maximum, lower_bound if maximum else 0)]

    # Operations of the queue's graph ----------------------------------------------------------

    def _build_enqueue(self, operation: QueueOperation) -> FedOperation:
        """Adds the enqueue operation, to which the values are fed."""
        batch = [unknown_dim()] if operation.is_batch else []
        fed = self._fed(*(one.aval(*batch) for one in self.elements.components))
        return self._in_graph.enqueue(operation, fed, operation.kernel_name), fed

    def _build_dequeue(self, operation: QueueOperation) -> FedOperation:
        """Adds the operation that dequeues one element."""
        return self._in_graph.dequeue(operation, operation.kernel_name)[0].op, []

    def _build_dequeue_many(self, operation: QueueOperation) -> FedOperation:
        """Adds the operation that dequeues several elements; the counts are fed."""
        fed = self._fed(abstract((), _INT32), abstract((), _INT32))
        name = operation.kernel_name
        return self._in_graph.dequeue_counted(operation, fed, unknown_dim(), name)[0].op, fed

    def _fed(self, *avals: Any) -> list[Tensor]:
        """Adds a placeholder for each abstract value."""
        return [self._graph.add(placeholder_p, [], [aval], name="fed").outputs[0] for aval in avals]


class TracedCall(NamedTuple):
    """An operation bound as an equation of a traced function."""

    outputs: tuple[Any, ...]


class TracedCalls:
    """Binds operations on a resource as equations of the function that JAX is tracing.

    Args:
      ref: the resource.
      describe: returns the repr of the resource, for messages.
    """

    def __init__(self, ref: ResourceRef, describe: Callable[[], str]) -> None:
        self._ref = ref
        self._describe = describe

    def operand(self, value: Any, dtype: Any) -> Any:
        value = stacked(value, dtype) if has_tensors(value) else value
        actual = value.dtype if isinstance(value, jax.Array) else dtype
        if actual != dtype:
            raise TypeError(f"{self._describe()} requires {dtype.name}, got {value!r:.80}")
        if dtype == string:
            raise TypeError(
                f"{self._describe()} requires strings, which JAX cannot trace; use it in graph "
                "code or from plain Python"
            )
        array = value if isinstance(value, jax.Array) else as_array(value, dtype)
        return jax.lax.stop_gradient(jax.numpy.asarray(array))

    def call(
        self,
        function: str,
        inputs: Sequence[Any],
        outputs: Sequence[AbstractValue],
        name: str,
        attributes: dict[str, Any] | None = None,
    ) -> TracedCall:
        for aval in outputs:
            if isinstance(aval, HostArray):
                raise TypeError(
                    f"{self._describe()} returns {aval.str_short()}, which JAX cannot trace; use "
                    "it in graph code or from plain Python, or give it a shape"
                )
        values = host_p.bind(
            *inputs,
            function=function,
            attributes=pack(attributes or {}, f"arguments of {function!r}"),
            resources=(self._ref,),
            is_blocking=True,
            outputs=tuple(outputs),
            line=origin.describe(origin.user_location()),
        )
        return TracedCall(tuple(values))
