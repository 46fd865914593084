"""`SnapshotOfTask`: one task's part of a checkpoint, taken at one moment and written later.

Taking it copies no variable: it leases their values, and an update of a leased variable works on a
copy (`jflow.state.resources.variable.snapshot`). Other resources are copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jflow.base.cluster import Device, Task
from jflow.base.values import Array, SaveSliceInfo
from jflow.errors import FailedPreconditionError, InvalidArgumentError
from jflow.plan.xla.host_view import host_view
from jflow.state.checkpoint_files import Item, ShardRecord, locate, write_shard
from jflow.state.effects import SavedLedger
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources import Containers, Lease, ResourceId, Snapshot, VariableId, Wanted
from jflow.state.resources.kinds import LedgerSnapshot, make
from jflow.state.resources.variable import LeasedVariable
from jflow.state.saves.items import StateItem, StateItems


class SnapshotOfTask:
    """A snapshot of one task. While the writing order is closed, `wanted` must complete, and then
    `complete` is called.

    Args:
      containers: the state of the task.
      items: what to save.

    Attributes:
      wanted: leases the variables.
      n_bytes: the size of the variables, once it is taken.
    """

    def __init__(self, containers: Containers, items: StateItems) -> None:
        self._containers = containers
        self._items, self._clients = items.items, items.clients
        self._cut = containers.cut(
            VariableId.of_state(one.state) for one in self._items if one.is_variable
        )
        self.wanted: Wanted = (containers.accesses, self._cut)
        self._resources: dict[StateItem, Snapshot] = {}
        self._effects: LedgerSnapshot | None = None
        self.n_bytes = 0

    def complete(self) -> None:
        """Snapshots the resources and the ledger, and checks the leased variables.

        Raises:
          FailedPreconditionError: if a variable is not initialized.
          InvalidArgumentError: if a variable or resource is not as the graph expects.
          OpError: if a resource is closed with an error.
        """
        for item in self._items:
            if item.is_variable:
                leased = self._cut.leased.get(VariableId.of_state(item.state))
                self.n_bytes += _checked_lease(item, leased).lease.buffer.array.nbytes
            else:
                self._resources[item] = self._state(item)
        # Steps that are applied once and saved are inside the order of writes, which is closed, so
        # those that are in the ledger are those that are in the variables.
        effects = LedgerSnapshot(self._containers.ledger(SavedLedger.of, self._clients))
        self._effects = effects if effects.ledger.saved.windows else None

    def _state(self, item: StateItem) -> Snapshot:
        """Snapshots a resource, or a new one if it does not exist yet."""
        resources = self._containers.resources
        if resources.find(ResourceId.of_state(item.state)) is None:
            return make(item.resource, AllowedDirectories(())).snapshot()
        # With a check that it is as the graph expects.
        return resources.get(Device.parse(item.device), item.resource).snapshot()

    def write(self, prefix: str, save: str, shard: str, roots: AllowedDirectories) -> ShardRecord:
        """Writes everything to a shard, releasing the lease of each variable once it is written.

        The directory is made if it does not exist.

        Args:
          prefix: the path of the checkpoint.
          save: the number of the save, 16 hexadecimal digits.
          shard: what tells the files of a save apart.
          roots: where checkpoints may be.

        Raises:
          PermissionDeniedError: if the prefix is outside the roots.
          ResourceExhaustedError: if the disk is full.
        """
        leases: dict[Item, Lease] = {}
        items = []
        for item in self._items:
            if not item.is_variable:
                items.append(Item(item.key, state=self._resources.pop(item)))
                continue
            lease = self._cut.leased[VariableId.of_state(item.state)].lease
            saved = [*_items_of(item, lease)]
            leases.update(dict.fromkeys(saved, lease))
            items.extend(saved)

        if self._effects is not None:
            items.append(Item(effects_key(self._containers.task), state=self._effects))
        n_unwritten = Counter(map(id, leases.values()))

        def written(saved: Item) -> None:
            lease = leases[saved]
            n_unwritten[id(lease)] -= 1
            if not n_unwritten[id(lease)]:
                lease.release()

        with locate(prefix, roots, makes=True) as place:
            return write_shard(place, save, shard, items, written)

    def drop(self) -> None:
        """Releases all leases. Idempotent."""
        for leased in self._cut.leased.values():
            leased.lease.release()
        self._resources.clear()


def _items_of(item: StateItem, lease: Lease) -> Iterator[Item]:
    """Yields the parts of a leased variable: one for each different shard that its mesh has."""
    array = lease.buffer.array
    if array.is_fully_replicated:
        yield Item(item.key, _LeasedArray(array), item.dtype, _slice(item))
        return
    n = len(item.shape)  # the others are of the physical form, and are never divided
    full_shape = item.shape if item.part is None else item.part.full_shape
    origin = (0,) * n if item.part is None else item.part.offset
    for shard in array.addressable_shards:
        if shard.replica_id == 0:
            starts = (each.start or 0 for each in shard.index[:n])
            offset = tuple(map(sum, zip(origin, starts, strict=True)))
            info = SaveSliceInfo(item.key, full_shape, offset, shard.data.shape[:n])
            yield Item(item.key, _LeasedArray(shard.data), item.dtype, info)


class _LeasedArray:
    """The value of a leased variable, or a shard, of which NumPy makes views without a cache."""

    def __init__(self, array: jax.Array) -> None:
        self.shape, self.dtype = array.shape, np.dtype(array.dtype)
        self._array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(host_view(self._array), dtype=dtype, copy=copy)


def effects_key(task: Task) -> str:
    """Returns the key of a task's ledger in a checkpoint."""
    return f"jflow.effects{task}"


def _checked_lease(item: StateItem, leased: LeasedVariable | None) -> LeasedVariable:
    if leased is None:
        raise FailedPreconditionError(
            f"Attempting to use uninitialized value: {item.variable.key} on {item.device}; "
            "initialize it before it is saved, or leave it out of var_list",
            op=item.name,
        )
    spec = leased.spec
    if (spec.dtype, spec.shape) != (item.dtype, item.shape):
        raise InvalidArgumentError(
            f"{item.variable.key} on {item.device} is {spec.dtype}{[*spec.shape]}, but this "
            f"graph expects {item.dtype}{[*item.shape]}; use another name or container",
            op=item.name,
        )
    return leased


def _slice(item: StateItem) -> SaveSliceInfo | None:
    if item.part is None:
        return None
    return SaveSliceInfo(item.key, item.part.full_shape, item.part.offset, item.shape)
