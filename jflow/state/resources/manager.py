"""The resources of a task, by container, device, kind and name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from jflow.base.cluster import Device, Task
from jflow.errors import CancelledError
from jflow.plan import ResourceSpec, owner_of
from jflow.state.moves import StateId, container_on
from jflow.state.quotas import UNKNOWN, Account, ChargedSession, Usage
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.cell import Cell
from jflow.state.resources.charged import Charged
from jflow.state.resources.kinds import check_same, make, restored
from jflow.state.resources.snapshot import Snapshot


class ResourceId(NamedTuple):
    """Identifies a resource of a task; the default container is "".

    Attributes:
      container, device, kind, name: where it is and what it is.
      owner: the session that it belongs to; "" if it is shared.
    """

    container: str
    device: Device
    kind: str
    name: str
    owner: str = ""

    @classmethod
    def of_state(cls, state: StateId) -> ResourceId:
        """Returns the id of a resource by its name in the cluster."""
        device = Device.parse(state.device)
        return cls(state.container, device, state.kind, state.name, state.owner)


_Key = tuple[str, Device, str, str, str]
"""A `ResourceId` as a plain tuple, which is made faster: each operation on a resource makes one."""

_CLOSED = "the session was closed"


class ResourceManager:
    """The resources of a task or of a local session; thread-safe.

    A resource is created at its first use. It belongs to a container and, unless it is shared, to a
    session.

    Args:
      task: the task, for messages.
      roots: the directories that resources may read.
      usage: charged for what they keep.
    """

    def __init__(self, task: Task, roots: AllowedDirectories, usage: Usage | None = None) -> None:
        self._usage = usage or Usage(task)
        self._task = task
        self._roots = roots
        self._lock = threading.Lock()
        self._cells: dict[_Key, Cell] = {}
        self._is_closed = False

    def get(self, device: Device, spec: ResourceSpec, creator: ChargedSession = UNKNOWN) -> Cell:
        """Returns the cell of a resource, creating the resource if it does not exist.

        Args:
          device, spec: where and what it is.
          creator: the session that a new one is charged to.

        Raises:
          InvalidArgumentError: if it exists with a different definition, or this one is malformed.
          CancelledError: if the manager is closed.
        """
        container = "" if spec.container == self._task.job else spec.container
        key = (container, device, spec.kind, spec.name, spec.owner)
        cell = self._cells.get(key)
        if cell is None:
            with self._lock:
                cell = self._cells.get(key)
                if cell is None:
                    if self._is_closed:
                        raise self._gone_error(ResourceId(*key), _CLOSED)
                    cell = Cell(make(spec, self._roots), spec.definition)
                    self._add(ResourceId(*key), cell, creator)
        if spec.definition not in cell.definitions:
            cell.query(lambda resource: check_same(resource, spec))
            cell.definitions.add(spec.definition)
        return cell

    def cells(self) -> Mapping[ResourceId, Cell]:
        """Returns the cells of all existing resources."""
        with self._lock:
            return {ResourceId(*key): cell for key, cell in self._cells.items()}

    def find(self, resource_id: ResourceId) -> Cell | None:
        """Returns the cell of a resource, or None if it does not exist."""
        with self._lock:
            return self._cells.get(self._key(resource_id))

    def restore_cell(self, kind: str, name: str, snapshot: Snapshot) -> Cell:
        """Creates a resource from a snapshot, unregistered, for `adopt`.

        Raises:
          InvalidArgumentError: if it cannot be restored from it.
          ResourceExhaustedError: if there is not enough memory.
        """
        return Cell(restored(kind, name, snapshot, self._roots))

    def adopt(self, resource_id: ResourceId, cell: Cell) -> None:
        """Registers a resource that `restore_cell` has created, unless the manager is closed."""
        with self._lock:
            if not self._is_closed:
                self._add(self._key(resource_id), cell, UNKNOWN)

    def discard(self, resource_id: ResourceId, why: str) -> None:
        """Frees a resource; the attempts that wait for it fail with a CancelledError."""
        key = self._key(resource_id)
        with self._lock:
            cell = self._cells.pop(key, None)
        if cell is not None:
            cell.close(self._gone_error(key, why))

    def clear(self, containers: Iterable[str]) -> None:
        """Frees all resources in containers; their waiting attempts fail with a CancelledError."""
        names = {container_on(self._task, name) for name in containers}
        self._free(lambda key: key.container in names, "its container was reset")

    def end_session(self, owner: str) -> None:
        """Frees the resources that belong to a session."""
        self._free(
            lambda key: owner in (key.owner, owner_of(key.container)), "its session has ended"
        )

    def clear_all(self) -> None:
        """Frees all resources and closes the manager."""
        with self._lock:
            self._is_closed = True
        self._free(lambda _: True, _CLOSED)

    def _add(self, key: ResourceId, cell: Cell, creator: ChargedSession) -> None:
        """Registers a resource, and charges what it keeps if it keeps tensors."""

        def charge(resource: object) -> None:
            if isinstance(resource, Charged):
                account = Account(key.container, creator)
                resource.allowance.charge_to(self._usage, account, resource.charged_bytes)

        cell.query(charge)
        self._cells[key] = cell

    def _key(self, resource_id: ResourceId) -> ResourceId:
        return resource_id._replace(container=container_on(self._task, resource_id.container))

    def _free(self, is_freed: Callable[[ResourceId], bool], why: str) -> None:
        with self._lock:
            freed = [*filter(is_freed, map(ResourceId._make, self._cells))]
            cells = [self._cells.pop(key) for key in freed]
        for key, cell in zip(freed, cells, strict=True):
            cell.close(self._gone_error(key, why))

    def _gone_error(self, key: ResourceId, why: str) -> CancelledError:
        text = key.kind.replace("_", " ")
        return CancelledError(f"{text} {key.name!r} is gone: {why}", task=str(self._task))
