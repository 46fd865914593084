"""What a picture shows: boxes for operations, state and fed values, and the arrows between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from jflow.cluster import Device
from jflow.graph import Operation, ResourceRef, Tensor, VariableRef
from jflow.graph.primitives import HANDLES, host_p, read_p, state_of


class BoxKind(Enum):
    """What a box stands for."""

    OPERATION = "operation"
    ACCESS = "access"
    VARIABLE = "variable"
    FEED = "feed"


class Flow(Enum):
    """Why one box comes before another."""

    DATA = "data"
    CONTROL = "control"
    STATE = "state"


@dataclass(eq=False)
class Box:
    """One shape of the picture.

    Attributes:
      kind: what it stands for; an access is an operation on a variable that is not part of it.
      name: the operation's, variable's or tensor's, or the scope's of a fold.
      device: where it is.
      ops: the operations it stands for; none for a fed value.
      subject: the variable or resource, or the tensor that is fed.
      made_at: the user's line that made it, "" for none.
      folded: the boxes that it replaces.
    """

    kind: BoxKind
    name: str
    device: Device
    ops: list[Operation] = field(default_factory=list)
    subject: VariableRef | ResourceRef | Tensor | None = None
    made_at: str = ""
    folded: tuple[Box, ...] = ()

    @property
    def scope(self) -> tuple[str, ...]:
        """The name scopes around it, the outermost first."""
        return tuple(self.name.split("/")[:-1])


@dataclass(eq=False)
class Arrow:
    """Everything of one kind that flows from one box to another.

    Attributes:
      source, target: the boxes.
      flow: the kind.
      tensors: the values, each once; none unless the flow is of data.
      sent: those of them whose transfer to the target's device no earlier arrow shows.
    """

    source: Box
    target: Box
    flow: Flow
    tensors: dict[Tensor, None] = field(default_factory=dict)
    sent: list[Tensor] = field(default_factory=list)

    @property
    def crosses(self) -> bool:
        """Whether it goes from device to device."""
        return self.source.device != self.target.device


@dataclass(frozen=True)
class Diagram:
    """Boxes, in an order in which the graph can run as far as folds have one, and arrows."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    @property
    def devices(self) -> list[Device]:
        """The devices in use, by name."""
        return sorted({box.device for box in self.boxes})


def build_diagram(placement: Mapping[Operation, Device]) -> Diagram:
    """Everything that a placed graph has: one box an operation, but one for a variable's reads."""
    builder = _DiagramBuilder(placement)
    ops = in_graph_order(placement)
    for op in ops:
        builder.add(op)
    for op in ops:
        builder.connect(op)
    return Diagram(tuple(builder.boxes()), tuple(builder.arrows.values()))


def in_graph_order(ops: Collection[Operation]) -> list[Operation]:
    """The operations in the order they were made."""
    graphs = dict.fromkeys(op.graph for op in ops)
    return [op for graph in graphs for op in graph.get_operations() if op in ops]


def joined(arrows: Iterable[Arrow], box_of: Mapping[Box, Box]) -> tuple[Arrow, ...]:
    """The arrows with their boxes replaced and those of one kind between the same boxes as one.

    Arrows inside one box are gone. A value is sent once to a device, however many arrows of the
    result it is on: the first of them shows it.
    """
    found: dict[tuple[Box, Box, Flow], Arrow] = {}
    for arrow in arrows:
        source, target = box_of[arrow.source], box_of[arrow.target]
        if source is not target:
            key = (source, target, arrow.flow)
            whole = found.setdefault(key, Arrow(source, target, arrow.flow))
            whole.tensors.update(arrow.tensors)
    shown: set[tuple[Tensor, Device]] = set()
    for arrow in found.values():
        keys = [(tensor, arrow.target.device) for tensor in arrow.tensors if arrow.crosses]
        arrow.sent.extend(tensor for tensor, to in keys if (tensor, to) not in shown)
        shown.update(keys)
    return tuple(found.values())


class _DiagramBuilder:
    """Boxes and arrows in the making."""

    def __init__(self, placement: Mapping[Operation, Device]) -> None:
        self._placement = placement
        self._box_of: dict[Operation, Box] = {}
        self._variables: dict[tuple[str, Device], Box] = {}
        self._feeds: dict[tuple[Tensor, Device], Box] = {}
        self.arrows: dict[tuple[Box, Box, Flow], Arrow] = {}

    def boxes(self) -> Iterable[Box]:
        """State and fed values first: where they are on a cycle, they are its beginning."""
        yield from self._variables.values()
        yield from self._feeds.values()
        yield from (box for box in self._box_of.values() if box.kind is not BoxKind.VARIABLE)

    def add(self, op: Operation) -> None:
        device = self._placement[op]
        if op.eqn.primitive in HANDLES:
            self._box_of[op] = box = self._variable(op, device)
            box.ops.append(op)
        elif op.eqn.primitive is read_p and not op.control_inputs:
            self._box_of[op] = box = self._used(op, op.eqn.params["variable"], device)
            box.ops.append(op)
        else:
            kind = BoxKind.ACCESS if state_of(op.eqn) else BoxKind.OPERATION
            self._box_of[op] = Box(kind, op.name, device, [op], made_at=op.origin)

    def _used(self, op: Operation, ref: VariableRef | ResourceRef, device: Device) -> Box:
        """The box of a variable or resource that an operation uses."""
        box = self._variable(op.graph.handle_of(ref), device)
        box.subject = ref
        return box

    def _variable(self, owner: Operation, device: Device) -> Box:
        new = Box(BoxKind.VARIABLE, owner.name, device, made_at=owner.origin)
        return self._variables.setdefault((owner.name, device), new)

    def connect(self, op: Operation) -> None:
        box = self._box_of[op]
        for tensor in op.inputs:
            source = self._box_of.get(tensor.op) or self._feed(tensor, box.device)
            self._arrow(source, box, Flow.DATA).tensors[tensor] = None
        for before in op.control_inputs:
            if before in self._box_of:
                self._arrow(self._box_of[before], box, Flow.CONTROL)
        for ref in state_of(op.eqn) if box.kind is BoxKind.ACCESS else ():
            state = self._used(op, ref, box.device)
            takes = op.eqn.primitive is read_p or (op.eqn.primitive is host_p and op.outputs)
            self._arrow(*((state, box) if takes else (box, state)), Flow.STATE)

    def _feed(self, tensor: Tensor, device: Device) -> Box:
        new = Box(BoxKind.FEED, tensor.name, device, subject=tensor, made_at=tensor.op.origin)
        return self._feeds.setdefault((tensor, device), new)

    def _arrow(self, source: Box, target: Box, flow: Flow) -> Arrow:
        return self.arrows.setdefault((source, target, flow), Arrow(source, target, flow))
