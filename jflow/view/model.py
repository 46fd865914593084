"""A placed graph as plain data: boxes on devices, and the arrows between them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from jflow.base.cluster import Device
from jflow.base.values import TensorSpec
from jflow.compiler.placement import Reason

GRADIENTS = re.compile(r"/gradients(_\d+)?/(?!forward/)")
"""The name scope of a backward pass; what it computes of the forward pass is in "forward"."""


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


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor: its name, and its shape and dtype."""

    name: str
    spec: TensorSpec

    @property
    def n_bytes(self) -> int:
        """Bytes of memory that it takes; see `spec_bytes`."""
        return spec_bytes(self.spec)


@dataclass(frozen=True, slots=True)
class OpInfo:
    """An operation in a diagram.

    Attributes:
      name: unique in the graph.
      type: the name of its JAX primitive or function.
      outputs: the tensors that it computes.
      uses: names of the variables and resources that it reads or changes.
      reason: why it is where it is, if the diagram is of an explanation and shows it alone.
      is_call: whether it calls a function under `jax.jit`, which its type names.
    """

    name: str
    type: str
    outputs: tuple[TensorInfo, ...]
    uses: tuple[str, ...]
    reason: Reason | None = None
    is_call: bool = False


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
      hidden: boxes that are part of this one in a diagram with few boxes: conversions and
        constants beside an operation, and the variables whose names are below that of a variable.
    """

    kind: BoxKind
    name: str
    device: Device
    ops: tuple[OpInfo, ...] = ()
    state: StateInfo | None = None
    fed: TensorInfo | None = None
    made_at: str = ""
    members: tuple[Box, ...] = ()
    hidden: tuple[Box, ...] = ()

    @property
    def parts(self) -> tuple[Box, ...]:
        """The boxes of the full diagram that it stands for: itself if it is one of them."""
        if self.members:
            return tuple(part for member in self.members for part in member.parts)
        return (self, *self.hidden)

    @property
    def all_ops(self) -> tuple[OpInfo, ...]:
        """The operations that it stands for, those of hidden boxes included."""
        return self.ops + tuple(op for box in self.hidden for op in box.ops)

    @property
    def is_gradient(self) -> bool:
        """Whether it is part of a backward pass, by its name scopes."""
        return GRADIENTS.search(f"/{self.name}/") is not None

    @property
    def scope(self) -> tuple[str, ...]:
        """The name scopes around the box, the outermost first."""
        return tuple(self.name.split("/")[:-1])


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


BoxFlow = tuple[int, int, Flow, Iterable[TensorInfo]]
"""A flow between two boxes: the indices of source and target, its kind, and its values."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """Boxes and the flows between them, before flows are merged into arrows.

    Attributes:
      boxes: as in a `Diagram`.
      links: the flows; a value is the same object wherever it occurs.
    """

    boxes: Sequence[Box]
    links: Sequence[BoxFlow]

    def diagram(self) -> Diagram:
        """Returns the diagram, with flows of a kind between the same two boxes as one arrow."""
        return Diagram(tuple(self.boxes), arrows_between(self.boxes, self.links))

    def merged(self, boxes: Sequence[Box], number_of: Sequence[int]) -> Sketch:
        """Returns the sketch with other boxes; flows inside of one of them are gone.

        Args:
          boxes: the boxes.
          number_of: for each box of this sketch the index of the one that it is part of.
        """
        links = (
            (number_of[source], number_of[target], flow, values)
            for source, target, flow, values in self.links
        )
        return Sketch(boxes, [link for link in links if link[0] != link[1]])


def arrows_between(boxes: Sequence[Box], links: Iterable[BoxFlow]) -> tuple[Arrow, ...]:
    """Merges flows of a kind between the same two boxes into an arrow; drops those within a box.

    A value is sent to a device once, however many arrows carry it there: the first of them has it
    in `sent`.
    """
    joined: dict[tuple[int, int, Flow], dict[int, TensorInfo]] = {}
    for source, target, flow, values in links:
        if source != target:
            joined.setdefault((source, target, flow), {}).update((id(v), v) for v in values)
    shown: set[tuple[int, Device]] = set()
    arrows = []
    for (source, target, flow), by_id in joined.items():
        device = boxes[target].device
        crosses = boxes[source].device != device
        sent = [key for key in by_id if (key, device) not in shown] if crosses else []
        shown.update((key, device) for key in sent)
        values = tuple(by_id.values())
        arrows.append(
            Arrow(source, target, flow, crosses, values, tuple(by_id[key] for key in sent))
        )
    return tuple(arrows)
