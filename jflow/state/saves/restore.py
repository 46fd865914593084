"""`RestoreOfTask`: one task's part of a restore, read first and set at one moment later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import prod

import numpy as np

from jflow.base.cluster import Device
from jflow.base.values import NUMBERS, Array, is_compatible, shape_text
from jflow.errors import InvalidArgumentError, NotFoundError
from jflow.plan import VARYING
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.state.checkpoint_files import Checkpoint, SavedTensor
from jflow.state.effects import NOTHING_APPLIED
from jflow.state.resources import Containers, Snapshot, VariableId, VariableSnapshot, Wanted
from jflow.state.resources.kinds import LedgerSnapshot
from jflow.state.resources.variable import declared_shape
from jflow.state.saves.items import StateItem, StateItems, StateSource
from jflow.state.saves.snapshot import effects_key
from jflow.state.saves.tensors import count_of_powers, fits_dtype, read_fitting


class RestoreOfTask:
    """A restore on one task. While the writing order is closed, `wanted` must complete, and then
    `finish` is called.

    Args:
      containers: the state of the task.
      items: what to restore.
      checkpoint: where from.
      device_of: the device of a name.

    Attributes:
      wanted: sets the variables, all at one moment.
      n_bytes: the size of what it has read of variables.
      states: what it sets.
      owners: the sessions that some of what it restores belongs to.

    Raises:
      NotFoundError: if the checkpoint lacks a key.
      InvalidArgumentError: if it has another dtype or shape than the graph expects.
      DataLossError: if a file is damaged.
    """

    def __init__(
        self,
        containers: Containers,
        items: StateItems,
        checkpoint: Checkpoint,
        device_of: Callable[[str], DeviceOrMesh],
    ) -> None:
        self._containers, self._clients = containers, items.clients
        keys = frozenset(checkpoint.keys())
        readers = [_reader(item, checkpoint, keys) for item in items.items]
        values: dict[VariableId, VariableSnapshot] = {}
        self._resources: list[tuple[StateItem, Snapshot]] = []
        self.n_bytes = 0
        self.states = frozenset(item.state for item in items.items)
        self.owners = {item.state.session for item in items.items} - {""}
        for item, read in zip(items.items, readers, strict=True):
            if read is not None:
                value = read()
                values[VariableId.of_state(item.state)] = VariableSnapshot(item.variable, value)
                self.n_bytes += value.nbytes
            else:
                self._resources.append((item, checkpoint.state(item.key)))
        key = effects_key(containers.task)
        saved = checkpoint.state(key) if key in checkpoint.state_keys() else None
        # Without a ledger it is of a time when nothing was applied that could be repeated.
        self._effects = saved.ledger if isinstance(saved, LedgerSnapshot) else NOTHING_APPLIED
        for item, snapshot in self._resources:
            # Made and dropped, so that what cannot be restored is found before anything is.
            containers.resources.restore_cell(item.kind, item.name, snapshot)
        setting = containers.restoring(values, lambda key: device_of(key.device), is_owned=True)
        self.wanted: Wanted = (containers.accesses, setting)

    def finish(self) -> None:
        """Restores resources and the ledger. Raises as `ResourceManager.get` and `Cell.restore`."""
        self._containers.ledger(self._effects.restore, self._clients)
        for item, snapshot in self._resources:
            cell = self._containers.resources.get(Device.parse(item.device), item.resource)
            cell.restore(snapshot)


def _reader(
    item: StateItem, checkpoint: Checkpoint, keys: Collection[str]
) -> Callable[[], Array] | None:
    """Returns what reads a variable, whose dtype and shape are checked; None for a resource.

    Raises NotFoundError if it is missing.
    """
    try:
        if not item.is_variable:
            if item.key not in checkpoint.state_keys():
                raise NotFoundError(
                    f"state {item.key!r} not found in checkpoint {checkpoint.path!r}"
                )
            return None
        there = [one for one in item.sources if one.key in keys]
        if item.key in keys or not there:
            return _reader_of(item, item.key, checkpoint)
        if there[0].base:
            return partial(_read_count, item, there, checkpoint)
        return _reader_of(item, there[0].key, checkpoint)
    except NotFoundError as error:
        error.with_context(op=item.name)
        raise


def _reader_of(item: StateItem, key: str, checkpoint: Checkpoint) -> Callable[[], Array]:
    tensor = checkpoint.info(key)
    _check(item, key, tensor, checkpoint.path)
    return partial(_read, item, key, tensor, checkpoint)


def _check(item: StateItem, key: str, tensor: SavedTensor, path: str) -> None:
    """Raises InvalidArgumentError if a tensor's dtype or shape does not fit its variable."""
    wanted = declared_shape(item.variable) if item.part is None else item.part.full_shape
    if not fits_dtype(tensor.dtype, item.dtype):
        raise InvalidArgumentError(
            f"cannot restore {item.variable.key} from key {key!r} of {path!r}: expected dtype "
            f"{item.dtype}, got {tensor.dtype}",
            op=item.name,
        )
    fits = is_compatible(wanted, tensor.shape)
    if item.reshapes and item.part is None and VARYING not in item.shape:
        fits = prod(item.shape) == prod(tensor.shape)
    if not fits:
        raise InvalidArgumentError(
            f"cannot restore {item.variable.key} from key {key!r} of {path!r}: expected shape "
            f"{shape_text(wanted)}, got {shape_text(tensor.shape)}; Saver(reshape=True) restores "
            "tensors that have as many elements",
            op=item.name,
        )


def _read(item: StateItem, key: str, tensor: SavedTensor, checkpoint: Checkpoint) -> Array:
    region = None
    if item.part is not None:
        sizes = zip(item.part.offset, item.shape, strict=True)
        region = [slice(begin, begin + size) for begin, size in sizes]
    value = read_fitting(checkpoint, key, item.dtype, region)
    reshapes = item.part is None and item.reshapes
    return value.reshape((*item.shape, *tensor.trailing)) if reshapes else value


def _read_count(item: StateItem, powers: Sequence[StateSource], checkpoint: Checkpoint) -> Array:
    count: Array = np.asarray(count_of_powers(checkpoint, powers), NUMBERS[item.dtype])
    return count
