"""`StateItem`: a variable or resource, and its key in a checkpoint."""

from __future__ import annotations

from typing import Annotated, ClassVar

from jflow.base.cluster import Device, Task
from jflow.base.packing import Finite, Limits, Meta, Record, Word
from jflow.base.text import bytes_text, seconds_text
from jflow.base.versions import Since
from jflow.errors import InvalidArgumentError
from jflow.plan import ResourceSpec, VariableKey, VariableSpec
from jflow.plan.state import check_sharding
from jflow.state.moves import StateId
from jflow.state.moves.states import VARIABLE


class StateSlice(Record, frozen=True):
    """The slice of a checkpoint's tensor that a variable holds.

    Attributes:
      full_shape: the sizes of the whole tensor.
      offset: where the part begins in each dimension; its sizes are those of the variable.
    """

    what = "slice of a tensor"

    full_shape: tuple[Word, ...]
    offset: tuple[Word, ...]


class StateSource(Record, frozen=True):
    """Where a restore finds a variable in a checkpoint that lacks its key.

    Attributes:
      key: the key of a tensor.
      base: 0 if the tensor is the value. Otherwise the value is a count, and the tensor is this
        number, between 0 and 1, multiplied by itself as often.
    """

    what = "source of a variable"

    key: str
    base: Annotated[float, Meta(ge=0, lt=1)] = 0.0


class StateItem(Record, frozen=True):
    """A variable or resource to save or restore.

    Attributes:
      key: its key in the checkpoint.
      device: the full name of the device that it is on.
      kind, container, name, owner: as in `StateId`.
      dtype, shape, sharding: of a variable, as in `VariableSpec`; "", () and "" of a resource.
      definition: the spec of a resource, packed; b"" of a variable.
      part: which part of the tensor of that key a variable has; None for all of it.
      reshapes: whether a variable takes a tensor of another shape that has as many elements.
      sources: where else a restore finds a variable; the first of them that is there.
    """

    what = "item of a checkpoint"

    key: str
    device: str
    kind: str
    container: str
    name: str
    owner: str = ""
    dtype: str = ""
    shape: tuple[Word, ...] = ()
    definition: bytes = b""
    part: StateSlice | None = None
    reshapes: bool = False
    sharding: str = ""
    sources: tuple[StateSource, ...] = ()

    def __post_init__(self) -> None:
        try:
            check_sharding(self.sharding, Device.parse(self.device).axes, len(self.shape))
        except ValueError as error:
            raise InvalidArgumentError(f"item {self.key!r} of a checkpoint: {error}") from None
        if self.part is not None and not (
            len(self.part.full_shape) == len(self.part.offset) == len(self.shape)
        ):
            raise InvalidArgumentError(
                f"item {self.key!r} of a checkpoint has shape {self.shape}, which is no part of "
                f"{self.part}"
            )

    @property
    def state(self) -> StateId:
        """The name of the state in the cluster."""
        return StateId(self.device, self.kind, self.container, self.name, self.owner)

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable."""
        return self.kind == VARIABLE

    @property
    def task(self) -> Task:
        """The task of the device."""
        return Device.parse(self.device).task

    @property
    def variable(self) -> VariableSpec:
        """The spec of the variable, as in plans."""
        key = VariableKey(self.container, self.name)
        return VariableSpec(key, self.dtype, self.shape, self.sharding)

    @property
    def resource(self) -> ResourceSpec:
        """The spec of the resource, as in plans."""
        return ResourceSpec(self.kind, self.container, self.name, self.owner, self.definition)

    def __str__(self) -> str:
        return f"{self.state}, key {self.key!r}"


class StateItems(Record, frozen=True, omit_defaults=True):
    """The items of one save or restore.

    Attributes:
      items: the items.
      clients: how the names of the clients begin whose effects (`jflow.state.effects`) are saved
        or restored with them; "" for all.
    """

    what = "items of a checkpoint"
    limits: ClassVar[Limits] = Limits(n_bytes=1 << 26, n_items=1 << 20)

    items: tuple[StateItem, ...]
    clients: Annotated[str, Since(12)] = ""


class SaveReport(Record, frozen=True):
    """A report of what a save or restore has done.

    Attributes:
      n_bytes: the size of what it wrote or read, in bytes.
      held_s: for how long steps were held back, in seconds.
      total_s: how long it took, in seconds.
      path: the path of the checkpoint: an absolute one, or a URL.
      tasks: the full names of the tasks that wrote or read it; the first one commits a save.
    """

    what = "report of a save"

    n_bytes: int = 0
    held_s: Finite = 0.0
    total_s: Finite = 0.0
    path: str = ""
    tasks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        size = f"{bytes_text(self.n_bytes)} in {seconds_text(self.total_s)}"
        tasks = ", ".join(self.tasks) or "no task"
        return f"<jflow.checkpoint.SaveReport of {self.path!r}: {size}, by {tasks}>"


def by_task(items: StateItems) -> dict[Task, StateItems]:
    """Groups items by task, keeping their order; tasks get the clients beside them."""
    groups: dict[Task, list[StateItem]] = {}
    for item in items.items:
        groups.setdefault(item.task, []).append(item)
    return {task: StateItems(tuple(own)) for task, own in groups.items()}
