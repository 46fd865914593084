"""Lists the containers, variables and queues of a task as records, for its watchers."""

from __future__ import annotations

from collections import Counter

from jflow.base.values import logical_shape, memory_bytes
from jflow.plan import VARYING
from jflow.plan.xla.shardings import text_of_sharding
from jflow.state.resources.cell import Cell
from jflow.state.resources.containers import Containers
from jflow.state.resources.manager import ResourceId
from jflow.state.resources.queue import QUEUE
from jflow.state.resources.queue.state import Queue
from jflow.state.resources.variable import VariableId, VariableState
from jflow.state.watch import (
    ContainerStatus,
    QueueStatus,
    StatusRequest,
    VariableStatus,
    bounded_name,
)


def list_containers(
    containers: Containers, request: StatusRequest
) -> tuple[int, tuple[ContainerStatus, ...]]:
    """Returns the number of containers and the requested page of them, sorted by name."""
    n_variables: Counter[str] = Counter()
    n_bytes: Counter[str] = Counter()
    for key, variable in containers.variables().items():
        n_variables[key.container] += 1
        n_bytes[key.container] += variable.buffer.array.nbytes
    n_resources = Counter(key.container for key in containers.resources.cells())
    names = sorted(n_variables.keys() | n_resources.keys())
    page = names[request.first : request.first + request.limit]
    return len(names), tuple(
        ContainerStatus(bounded_name(name), n_variables[name], n_bytes[name], n_resources[name])
        for name in page
    )


class VariableLister:
    """Lists the variables of a task, page by page.

    Their order is computed once for all pages, unless variables come or go between two of them.
    """

    def __init__(self) -> None:
        self._order: list[VariableId] = []

    def list(
        self, containers: Containers, request: StatusRequest
    ) -> tuple[int, tuple[VariableStatus, ...]]:
        """Returns the number of variables and the requested page, by container, device and name."""
        variables = containers.variables()
        order = self._order
        if len(order) != len(variables) or not all(map(variables.__contains__, order)):
            # By the fields of their names: with a key it takes four times as long.
            order = self._order = sorted(variables)
        page = order[request.first : request.first + request.limit]
        return len(order), tuple(_variable(key, variables[key]) for key in page)


def list_queues(
    containers: Containers, request: StatusRequest
) -> tuple[int, tuple[QueueStatus, ...]]:
    """Returns the number of queues and the requested page of them, sorted by container and name."""
    cells = containers.resources.cells()
    keys = [key for key in cells if key.kind == QUEUE.name]
    keys.sort(key=lambda key: (key.container, key.name, str(key.device), key.owner))
    page = keys[request.first : request.first + request.limit]
    return len(keys), tuple(_queue(key, cells[key]) for key in page)


def _variable(key: VariableId, variable: VariableState) -> VariableStatus:
    # The array may be given to a program meanwhile, which leaves its shape and dtype known.
    array, spec = variable.buffer.array, variable.spec
    varying = tuple(i for i, size in enumerate(spec.shape) if size == VARYING)
    return VariableStatus(
        bounded_name(key.container),
        bounded_name(key.name),
        key.device,
        spec.dtype,
        logical_shape(tuple(array.shape), spec.dtype),
        memory_bytes(array),
        text_of_sharding(array.sharding, array.ndim),
        varying,
    )


def _queue(key: ResourceId, cell: Cell) -> QueueStatus:
    def read(queue: Queue) -> QueueStatus:
        n_enqueues, n_dequeues = queue.n_waiting
        return QueueStatus(
            bounded_name(key.container),
            bounded_name(key.name),
            str(key.device),
            queue.spec.kind,
            queue.size,
            queue.size_bytes,
            queue.spec.capacity,
            queue.spec.capacity_bytes,
            n_enqueues,
            n_dequeues,
            queue.is_closed,
            key.owner,
        )

    return cell.query(read)
