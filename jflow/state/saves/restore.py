"""`RestoreOfTask`: one task's part of a restore, read first and set at one moment later."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from jflow.base.cluster import Device
from jflow.base.values import Array, is_compatible, shape_text
from jflow.errors import InvalidArgumentError, NotFoundError
from jflow.plan import VARYING
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.state.checkpoint_files import Checkpoint, SavedTensor
from jflow.state.effects import NOTHING_APPLIED
from jflow.state.resources import Containers, Snapshot, VariableId, VariableSnapshot, Wanted
from jflow.state.resources.kinds import LedgerSnapshot
from jflow.state.resources.variable import declared_shape
from jflow.state.saves.items import StateItem, StateItems
from jflow.state.saves.snapshot import effects_key, resource_id, variable_id


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
        self._containers = containers
        infos = [_info(item, checkpoint) for item in items.items]
        for item, info in zip(items.items, infos, strict=True):
            if info is not None:
                _check(item, info, checkpoint.path)
        values: dict[VariableId, VariableSnapshot] = {}
        self._resources: list[tuple[StateItem, Snapshot]] = []
        self.n_bytes = 0
        self.owners = {item.state.session for item in items.items} - {""}
        for item, info in zip(items.items, infos, strict=True):
            if info is not None:
                value = _read(item, info, checkpoint)
                values[variable_id(item)] = VariableSnapshot(item.variable, value)
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
        """Restores resources and the ledger. Raises as `ResourceManager.restore`."""
        self._containers.ledger(self._effects.restore)
        resources = self._containers.resources
        for item, snapshot in self._resources:
            resources.get(Device.parse(item.device), item.resource)
            resources.restore(resource_id(item), snapshot)


def _info(item: StateItem, checkpoint: Checkpoint) -> SavedTensor | None:
    """Returns a variable's saved tensor; None for a resource. Raises NotFoundError if missing."""
    try:
        if item.is_variable:
            return checkpoint.info(item.key)
        if item.key in checkpoint.state_keys():
            return None
        raise NotFoundError(f"state {item.key!r} not found in checkpoint {checkpoint.path!r}")
    except NotFoundError as error:
        error.with_context(op=item.name)
        raise


def _check(item: StateItem, tensor: SavedTensor, path: str) -> None:
    """Raises InvalidArgumentError if a tensor's dtype or shape does not fit its variable."""
    wanted = declared_shape(item.variable) if item.part is None else item.part.full_shape
    if tensor.dtype != item.dtype:
        raise InvalidArgumentError(
            f"cannot restore {item.variable.key} from key {item.key!r} of {path!r}: expected dtype "
            f"{item.dtype}, got {tensor.dtype}",
            op=item.name,
        )
    fits = is_compatible(wanted, tensor.shape)
    if item.reshapes and item.part is None and VARYING not in item.shape:
        fits = prod(item.shape) == prod(tensor.shape)
    if not fits:
        raise InvalidArgumentError(
            f"cannot restore {item.variable.key} from key {item.key!r} of {path!r}: expected shape "
            f"{shape_text(wanted)}, got {shape_text(tensor.shape)}; Saver(reshape=True) restores "
            "tensors that have as many elements",
            op=item.name,
        )


def _read(item: StateItem, tensor: SavedTensor, checkpoint: Checkpoint) -> Array:
    if item.part is not None:
        sizes = zip(item.part.offset, item.shape, strict=True)
        return checkpoint.read(item.key, [slice(begin, begin + size) for begin, size in sizes])
    value = checkpoint.read(item.key)
    return value.reshape((*item.shape, *tensor.trailing)) if item.reshapes else value
