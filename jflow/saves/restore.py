"""`RestoreOfTask`: what one task takes from a checkpoint, read first and set at one moment then."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import jax
import numpy as np

from jflow.checkpoint import Checkpoint, EntryInfo
from jflow.cluster import Device
from jflow.errors import InvalidArgumentError, NotFoundError
from jflow.plan import VARYING
from jflow.resources import Close, Containers, Snapshot, VariableId, VariableSnapshot, Wanted
from jflow.resources.variable import declared_shape
from jflow.saves.items import StateItem, StateItems
from jflow.saves.snapshot import reopen, resource_id, variable_id
from jflow.values import Array, is_compatible, shape_text


class RestoreOfTask:
    """A restore on one task. `closing` and `wanted` must complete, in this order, before `finish`.

    Args:
      containers: the state of the task.
      items: what to restore.
      checkpoint: where from.
      device_of: the device of a name.

    Attributes:
      closing: waits until no step of the task is in the middle of its writes.
      wanted: sets the variables, all at one moment.
      n_bytes: the size of what it has read of variables.

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
        device_of: Callable[[str], jax.Device],
    ) -> None:
        self._containers = containers
        for item in items.items:
            _check(item, checkpoint)
        values: dict[VariableId, VariableSnapshot] = {}
        self._resources: list[tuple[StateItem, Snapshot]] = []
        self.n_bytes = 0
        for item in items.items:
            if item.is_variable:
                value = _read(item, checkpoint)
                values[variable_id(item)] = VariableSnapshot(item.variable, value)
                self.n_bytes += value.nbytes
            else:
                self._resources.append((item, _state(item, checkpoint)))
        for item, snapshot in self._resources:
            # Made and dropped, so that what cannot be restored is found before anything is.
            containers.resources.made(item.kind, item.name, snapshot)
        self.closing: Wanted = (containers.writing, Close())
        setting = containers.restoring(values, lambda key: device_of(key.device), is_owned=True)
        self.wanted: Wanted = (containers.accesses, setting)

    def finish(self) -> None:
        """Restores resources. Raises as `ResourceManager.restore`."""
        resources = self._containers.resources
        for item, snapshot in self._resources:
            resources.get(Device.parse(item.device), item.resource)
            resources.restore(resource_id(item), snapshot)

    def reopen(self) -> None:
        """Lets steps go on that write more than once. May be called again."""
        reopen(self.closing)


def _check(item: StateItem, checkpoint: Checkpoint) -> None:
    """Raises unless the checkpoint has the item, with the dtype and shape that it needs."""
    if item.key not in checkpoint.keys():
        raise NotFoundError(
            f"key {item.key!r} is not in the checkpoint {checkpoint.prefix}, which has "
            f"{_some(checkpoint)}; restore with a var_list of what it has, or map names to "
            "variables",
            op=item.name,
        )
    if item.is_variable:
        _check_tensor(item, checkpoint.info(item.key), checkpoint.prefix)


def _check_tensor(item: StateItem, found: EntryInfo, prefix: str) -> None:
    is_whole = item.part is None
    wanted = declared_shape(item.variable) if item.part is None else item.part.full_shape
    if found.dtype != item.dtype:
        raise InvalidArgumentError(
            f"cannot restore {item.variable.key} from key {item.key!r} of {prefix}: expected dtype "
            f"{item.dtype}, got {found.dtype}; give the variable that dtype",
            op=item.name,
        )
    fits = is_compatible(wanted, found.shape) if VARYING in item.shape else wanted == found.shape
    if item.reshapes and item.part is None and VARYING not in item.shape:
        fits = prod(item.shape) == prod(found.shape)
    if not fits:
        what = "shape" if is_whole else "a tensor of shape"
        raise InvalidArgumentError(
            f"cannot restore {item.variable.key} from key {item.key!r} of {prefix}: expected "
            f"{what} {shape_text(wanted)}, got {shape_text(found.shape)}; pass reshape=True if "
            "only the shape differs",
            op=item.name,
        )


def _read(item: StateItem, checkpoint: Checkpoint) -> Array:
    if item.part is None:
        value = checkpoint.read(item.key)
        if not item.reshapes:
            return value
        # The data of random keys has more dimensions than the keys.
        own = value.shape[len(checkpoint.info(item.key).shape) :]
        return value.reshape((*item.shape, *own))
    region = tuple(zip(item.part.offset, item.shape, strict=True))
    return np.ascontiguousarray(checkpoint.read(item.key, region))


def _state(item: StateItem, checkpoint: Checkpoint) -> Snapshot:
    return checkpoint.state(item.key)


def _some(checkpoint: Checkpoint) -> str:
    keys = sorted(checkpoint.keys())
    shown = ", ".join(map(repr, keys[:8]))
    return shown if len(keys) <= 8 else f"{shown} and {len(keys) - 8} more"
