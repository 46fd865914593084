"""A placed graph as plain data: boxes on devices, and the arrows between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from jflow.base.cluster import Device
from jflow.base.values import TensorSpec
from jflow.compiler.placement import Reason


class BoxKind(Enum):
    """The kind of a box."""

    OPERATION = "operation"
    ACCESS = "access"
    STATE = "state"
    FEED = "feed"


class Flow(Enum):
    """The kind of an arrow: why one box comes before another."""

    DATA = "data"
    CONTROL = "control"
    STATE = "state"


@dataclass(frozen=True)
class TensorInfo:
    """A tensor: its name, and its shape and dtype."""

    name: str
    spec: TensorSpec

    @property
    def n_bytes(self) -> int:
        """Bytes of memory that it takes; see `spec_bytes`."""
        return spec_bytes(self.spec)


@dataclass(frozen=True)
class OpInfo:
    """An operation in a diagram.

    Attributes:
      name: unique in the graph.
      type: the name of its JAX primitive or function.
      outputs: the tensors that it computes.
      uses: names of the variables and resources that it reads or changes.
      reason: why it is where it is, if the diagram is of an explanation and shows it alone.
    """

    name: str
    type: str
    outputs: tuple[TensorInfo, ...]
    uses: tuple[str, ...]
    reason: Reason | None = None


@dataclass(frozen=True)
class StateInfo:
    """A variable or resource in a diagram.

    Attributes:
      kind: "variable", or the kind of the resource, such as "queue" or "reader".
      name: its name in the container.
      container: the container that holds it, "" for the default one.
      spec: shape and dtype of a variable's value, None for a resource.
    """

    kind: str
    name: str
    container: str
    spec: TensorSpec | None


@dataclass(frozen=True)
class Box:
    """A box: an operation, a variable or resource with its reads, a fed value, or a fold.

    Attributes:
      kind: what it stands for; an access is an operation on state that has a box of its own.
      name: the name of the operation, state or tensor; of a fold, the name scope.
      device: where it is placed.
      ops: the operations that it stands for; none for a fed value.
      state: the variable or resource, if the kind is STATE and an operation uses it.
      fed: the tensor that is fed, if the kind is FEED.
      made_at: the user's line that made it, "" if that is unknown.
      members: the boxes that a fold replaces; none if it is not a fold.
    """

    kind: BoxKind
    name: str
    device: Device
    ops: tuple[OpInfo, ...] = ()
    state: StateInfo | None = None
    fed: TensorInfo | None = None
    made_at: str = ""
    members: tuple[Box, ...] = ()

    @property
    def scope(self) -> tuple[str, ...]:
        """The name scopes around the box, the outermost first."""
        return tuple(self.name.split("/")[:-1])


@dataclass(frozen=True)
class Arrow:
    """All flows of one kind from one box to another.

    Attributes:
      source, target: indices of the boxes.
      flow: the kind.
      crosses: whether the boxes are on different devices.
      values: the tensors, each once; none unless data flows.
      sent: those of them whose transfer to the target's device no earlier arrow shows.
    """

    source: int
    target: int
    flow: Flow
    crosses: bool
    values: tuple[TensorInfo, ...] = ()
    sent: tuple[TensorInfo, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a placed step, and its lower bound.

    Attributes:
      strategy: the name of what placed it.
      seconds: the predicted time of the step.
      lower_bound: seconds that every placement takes at least.
    """

    strategy: str
    seconds: float
    lower_bound: float


@dataclass(frozen=True)
class Diagram:
    """Boxes and arrows of a placed graph.

    Attributes:
      boxes: state and fed values, then operations in an order in which the graph can run, as far
        as folds have one.
      arrows: at most one of each kind of flow from one box to another.
      prediction: of the step, if the diagram is of an explanation.
    """

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    prediction: Prediction | None = None

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices in use, sorted by name; each groups the boxes that are placed on it."""
        return tuple(sorted({box.device for box in self.boxes}))


def spec_bytes(spec: TensorSpec) -> int:
    """Returns the bytes of memory that a tensor takes; each unknown size counts as 1."""
    sizes = (1 if size is None else size for size in spec.shape or ())
    return math.prod(sizes) * int(spec.dtype.itemsize)


def total_bytes(values: Iterable[TensorInfo]) -> int:
    """Returns the total bytes of memory that tensors take; see `spec_bytes`."""
    return sum(value.n_bytes for value in values)


def arrows_between(
    boxes: Sequence[Box], flows: Iterable[tuple[int, int, Flow, Iterable[TensorInfo]]]
) -> tuple[Arrow, ...]:
    """Merges flows of a kind between the same two boxes into an arrow; drops those within a box.

    A value is sent to a device once, however many arrows carry it there: the first of them has it
    in `sent`.

    Args:
      boxes: all boxes.
      flows: (source, target, kind, values), with indices of boxes.
    """
    joined: dict[tuple[int, int, Flow], dict[TensorInfo, None]] = {}
    for source, target, flow, values in flows:
        if source != target:
            joined.setdefault((source, target, flow), {}).update(dict.fromkeys(values))
    shown: set[tuple[TensorInfo, Device]] = set()
    arrows = []
    for (source, target, flow), values in joined.items():
        device = boxes[target].device
        crosses = boxes[source].device != device
        sent = tuple(v for v in values if (v, device) not in shown) if crosses else ()
        shown.update((value, device) for value in sent)
        arrows.append(Arrow(source, target, flow, crosses, tuple(values), sent))
    return tuple(arrows)
