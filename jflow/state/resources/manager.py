"""The resources of a task, by container, device, kind and name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from jflow.base.cluster import Device, Task
from jflow.errors import CancelledError
from jflow.plan import ResourceSpec, owner_of
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


_Key = tuple[Device, str, str]
_Scope = tuple[str, str]
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
        self._scopes: dict[_Scope, dict[_Key, Cell]] = {}
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
        scope = (spec.owner, "" if spec.container == self._task.job else spec.container)
        key = (device, spec.kind, spec.name)
        cell = self._scopes.get(scope, {}).get(key)
        if cell is None:
            with self._lock:
                cell = self._scopes.get(scope, {}).get(key)
                if cell is None:
                    if self._is_closed:
                        raise self._gone_error(spec.kind, spec.name, _CLOSED)
                    cell = Cell(make(spec, self._roots), spec.definition)
                    self._charge(cell, Account(scope[1], creator))
                    self._scopes.setdefault(scope, {})[key] = cell
        if spec.definition not in cell.definitions:
            cell.query(lambda resource: check_same(resource, spec))
            cell.definitions.add(spec.definition)
        return cell

    def cells(self) -> Mapping[ResourceId, Cell]:
        """Returns the cells of all existing resources."""
        with self._lock:
            return {
                ResourceId(container, *key, owner): cell
                for (owner, container), cells in self._scopes.items()
                for key, cell in cells.items()
            }

    def restore(self, resource_id: ResourceId, snapshot: Snapshot) -> None:
        """Restores a resource from a snapshot, creating the resource if it does not exist.

        Raises:
          CancelledError: if the manager is closed, or the resource was freed in the meantime.
          InvalidArgumentError: if it cannot be restored from it; nothing has changed then.
          ResourceExhaustedError: if there is not enough memory; likewise.
        """
        container, device, kind, name, owner = resource_id
        scope, key = (owner, self._canonical(container)), (device, kind, name)
        with self._lock:
            cell = self._scopes.get(scope, {}).get(key)
            if cell is None:
                if self._is_closed:
                    raise self._gone_error(kind, name, _CLOSED)
                cell = Cell(restored(kind, name, snapshot, self._roots))
                self._charge(cell, Account(scope[1]))
                self._scopes.setdefault(scope, {})[key] = cell
                return
        cell.restore(snapshot)

    def find(self, resource_id: ResourceId) -> Cell | None:
        """Returns the cell of a resource, or None if it does not exist."""
        container, device, kind, name, owner = resource_id
        scope = (owner, self._canonical(container))
        with self._lock:
            return self._scopes.get(scope, {}).get((device, kind, name))

    def restore_cell(self, kind: str, name: str, snapshot: Snapshot) -> Cell:
        """Creates a resource from a snapshot, unregistered, for `adopt`. Raises as `restore`."""
        return Cell(restored(kind, name, snapshot, self._roots))

    def adopt(self, resource_id: ResourceId, cell: Cell) -> None:
        """Registers a resource that `restore_cell` has created, unless the manager is closed."""
        container, device, kind, name, owner = resource_id
        with self._lock:
            if not self._is_closed:
                scope = (owner, self._canonical(container))
                self._charge(cell, Account(scope[1]))
                self._scopes.setdefault(scope, {})[device, kind, name] = cell

    def discard(self, resource_id: ResourceId, why: str) -> None:
        """Frees a resource; the attempts that wait for it fail with a CancelledError."""
        container, device, kind, name, owner = resource_id
        with self._lock:
            scope = self._scopes.get((owner, self._canonical(container)), {})
            cell = scope.pop((device, kind, name), None)
        if cell is not None:
            cell.close(self._gone_error(kind, name, why))

    def clear(self, containers: Iterable[str]) -> None:
        """Frees all resources in containers; their waiting attempts fail with a CancelledError."""
        names = {*map(self._canonical, containers)}
        self._free(lambda scope: scope[1] in names, "its container was reset")

    def end_session(self, owner: str) -> None:
        """Frees the resources that belong to a session."""
        self._free(lambda scope: owner in (scope[0], owner_of(scope[1])), "its session has ended")

    def clear_all(self) -> None:
        """Frees all resources and closes the manager."""
        with self._lock:
            self._is_closed = True
        self._free(lambda _: True, _CLOSED)

    def names(self) -> dict[str, list[tuple[str, str]]]:
        """Returns the kind and name of each shared resource, by container."""
        with self._lock:
            return {
                container: sorted((kind, name) for _, kind, name in cells)
                for (owner, container), cells in self._scopes.items()
                if not owner
            }

    def _charge(self, cell: Cell, account: Account) -> None:
        """Charges what a resource keeps to an account, if it keeps tensors."""

        def charge(resource: object) -> None:
            if isinstance(resource, Charged):
                n_bytes = resource.size_bytes + resource.held_bytes
                resource.allowance.charge_to(self._usage, account, n_bytes)

        cell.query(charge)

    def _canonical(self, container: str) -> str:
        return "" if container == self._task.job else container

    def _free(self, is_freed: Callable[[_Scope], bool], why: str) -> None:
        with self._lock:
            freed = [self._scopes.pop(scope) for scope in [*self._scopes] if is_freed(scope)]
        for cells in freed:
            for (_, kind, name), cell in cells.items():
                cell.close(self._gone_error(kind, name, why))

    def _gone_error(self, kind: str, name: str, why: str) -> CancelledError:
        text = kind.replace("_", " ")
        return CancelledError(f"{text} {name!r} is gone: {why}", task=str(self._task))
