"""`SlotTable`: the variables of an optimizer's state, by what they belong to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from jax.sharding import PartitionSpec
from jax.tree_util import GetAttrKey, keystr

from jflow.base.values import SaveSliceInfo
from jflow.client.ops import Variable
from jflow.training.optimizers.locality import SHARED, OwnerIndex


@dataclasses.dataclass(frozen=True)
class SlotNames:
    """TensorFlow's names of what an optimizer keeps.

    Attributes:
      fields: the field of the transformation's state that each slot is, by the name of the slot, in
        the order in which TensorFlow makes them. In a graph the variables of slots have the name of
        the optimizer, with `_1`, `_2`, … from the second one on.
      powers: the hyperparameters whose powers TensorFlow keeps instead of a count of updates, by
        the names of these variables; the last one is the largest number.
      always: the slots that TensorFlow makes also where the state has none. They are the last, and
        the names of their variables stay free.
    """

    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    powers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    always: tuple[str, ...] = ()

    def rank(self, path: tuple[Any, ...], owner: OwnerIndex) -> int:
        """Returns the place of a leaf of the state in TensorFlow's order; -1 if it has none."""
        fields = [*self.fields.values()]
        field = _last_field(path[:-1]) if owner != SHARED else ""
        return fields.index(field) if field in fields else -1

    def absent(self, paths: Iterable[tuple[Any, ...]]) -> int:
        """Returns how many of the slots that TensorFlow always makes a state does not have."""
        there = {_last_field(path[:-1]) for path in paths}
        return sum(self.fields[name] not in there for name in self.always)

    def bases(self, hyperparameters: Mapping[str, Any]) -> dict[str, float]:
        """Returns the numbers whose powers say how many updates there were, by name.

        It is empty if the last one is not a number between 0 and 1 that the program fixes.
        """
        numbers = {name: hyperparameters.get(which) for name, which in self.powers.items()}
        bases = {
            name: float(number)
            for name, number in numbers.items()
            if isinstance(number, int | float | np.floating) and 0 < number < 1
        }
        return bases if [*self.powers][-1:] == [*bases][-1:] else {}


class SlotTable:
    """The variables of an optimizer's state.

    Attributes:
      by_key: all of them, by `slot_key`.
      slots: those that belong to one variable, by that variable and their names.
      shared: the others.
      counts: counts of updates among the others, by the graph that they are in.
    """

    def __init__(self) -> None:
        self.by_key: dict[Hashable, Variable] = {}
        self.slots: dict[Variable, dict[str, Variable]] = {}
        self.shared: list[Variable] = []
        self.counts: dict[Any, Variable] = {}
        self._places: dict[Variable, int] = {}

    def add(
        self,
        key: Hashable,
        path: tuple[Any, ...],
        owner: OwnerIndex,
        variables: Sequence[Variable],
        create: Callable[[Variable, str], Variable],
        place: int = 0,
    ) -> None:
        """Adds the variable of one leaf of the state.

        A leaf that belongs to one variable is on its device and named after it; any other leaf is
        on that of the first variable.

        Args:
          key: the key of the leaf.
          path, owner: the path of the leaf in the state, and the index of its variable.
          variables: the variables that are trained.
          create: creates a variable on the device of another one, with a name below that one's.
          place: the place of the leaf in the state, if leaves are added in another order.
        """
        field = path if owner == SHARED else path[:-1]
        param, name = variables[max(owner, 0)], slot_name(field)
        slot = self.by_key[key] = create(param, name)
        slot.save_slice_info = _slice_of(slot, param)
        if owner == SHARED:
            self.shared.append(slot)
            if not slot.is_eager and _last_field(field) == "count":
                self.counts.setdefault(slot.graph, slot)
        else:
            own = self.slots.setdefault(param, {})
            own[_last_field(field) if _last_field(field) not in own else name] = slot
        self._places[slot] = place

    def variables(self) -> list[Variable]:
        """Returns all variables of the state, the shared ones first, else as they are in it.

        Checkpoints of optimizers know them by their order.
        """
        slots = (sorted(own.values(), key=self._places.__getitem__) for own in self.slots.values())
        return [*self.shared, *chain.from_iterable(slots)]


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


def key_of_slot(name: str, slot: Variable, param: Variable) -> str:
    """Returns the key in a checkpoint of a slot of that name.

    A slot of a part of a partitioned variable is a slice of the slot of the whole.
    """
    info = param.save_slice_info
    if info is None or slot.shape != param.shape:
        return name
    before, _, after = name.rpartition(param.operations.ref.name)
    return f"{before}{info.full_name}{after}"


def _slice_of(slot: Variable, param: Variable) -> SaveSliceInfo | None:
    """Returns the slice that a slot of a part of a partitioned variable is in a checkpoint."""
    info = param.save_slice_info
    if info is None or slot.shape != param.shape:
        return None
    return dataclasses.replace(info, full_name=key_of_slot(slot.operations.ref.name, slot, param))
