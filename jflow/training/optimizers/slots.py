"""`SlotTable`: the variables of an optimizer's state, by what they belong to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from jax.sharding import PartitionSpec
from jax.tree_util import GetAttrKey, keystr

from jflow.base.values import SaveSliceInfo
from jflow.client.ops import Variable
from jflow.training.optimizers.locality import SHARED, OwnerIndex


class SlotTable:
    """The variables of an optimizer's state.

    Attributes:
      slots: those that belong to one variable, by that variable and their names.
      shared: the others.
      counts: counts of updates among the others, by the graph that they are in.
    """

    def __init__(self) -> None:
        self.slots: dict[Variable, dict[str, Variable]] = {}
        self.shared: list[Variable] = []
        self.counts: dict[Any, Variable] = {}

    def add(
        self,
        path: tuple[Any, ...],
        owner: OwnerIndex,
        variables: Sequence[Variable],
        create: Callable[[Variable, str], Variable],
    ) -> Variable:
        """Adds the variable of one leaf of the state and returns it.

        A leaf that belongs to one variable is on its device and named after it; any other leaf is
        on that of the first variable.

        Args:
          path, owner: the path of the leaf in the state, and the index of its variable.
          variables: the variables that are trained.
          create: creates a variable on the device of another one, with a name below that one's.
        """
        field = path if owner == SHARED else path[:-1]
        param, name = variables[max(owner, 0)], slot_name(field)
        slot = create(param, name)
        slot.save_slice_info = _slice_of(slot, param)
        if owner == SHARED:
            self.shared.append(slot)
            if not slot.is_eager and _last_field(field) == "count":
                self.counts.setdefault(slot.graph, slot)
        else:
            own = self.slots.setdefault(param, {})
            own[_last_field(field) if _last_field(field) not in own else name] = slot
        return slot

    def variables(self) -> list[Variable]:
        """Returns all variables of the state, the shared ones first."""
        return [*self.shared, *(slot for own in self.slots.values() for slot in own.values())]


def sharding_of_slot(param: Variable, shape: Sequence[int]) -> PartitionSpec | None:
    """Returns the sharding of a slot of a variable: the variable's, if it is as large."""
    return param.sharding if tuple(shape) == tuple(param.shape) else None


def slot_name(path: tuple[Any, ...]) -> str:
    """Returns the name of the variable of a leaf of a state."""
    return keystr(path, simple=True, separator="_") or "state"


def slot_key(path: tuple[Any, ...], value: Any, variables: Sequence[Variable]) -> Hashable:
    """Returns the key of one variable of an optimizer's state: what it belongs to, and its name.

    Args:
      path, value: the path of a leaf of the state, and its type.
      variables: the variables that are trained.
    """
    index = getattr(path[-1], "idx", SHARED) if path else SHARED
    if 0 <= index < len(variables):  # of another shape than its variable, too
        return variables[index], slot_name(path[:-1]), value.shape, value.dtype
    first = variables[0]
    whose = first.operations.ref.owner if first.is_eager else first.graph
    return whose, slot_name(path), value.shape, value.dtype


def _last_field(path: tuple[Any, ...]) -> str:
    """Returns the name of the last field of a state on a path."""
    names = [key.name for key in path if isinstance(key, GetAttrKey)]
    return names[-1] if names else keystr(path, simple=True, separator="_")


def _slice_of(slot: Variable, param: Variable) -> SaveSliceInfo | None:
    """Returns the slice that a slot of a part of a partitioned variable is in a checkpoint."""
    info = param.save_slice_info
    if info is None or slot.shape != param.shape:
        return None
    name = slot.operations.ref.name.removeprefix(param.operations.ref.name)
    return dataclasses.replace(info, full_name=f"{info.full_name}{name}")
