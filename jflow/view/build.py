"""Builds the diagram of a placed graph."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from jflow.base.cluster import Device
from jflow.base.values import AbstractValue, TensorSpec, declared
from jflow.compiler.graph import Operation, ResourceRef, Tensor, VariableRef
from jflow.compiler.graph.primitives import HANDLES, host_p, read_p, state_of
from jflow.compiler.placement import Explanation
from jflow.view.model import (
    Box,
    BoxKind,
    Diagram,
    Flow,
    OpInfo,
    Prediction,
    Sketch,
    StateInfo,
    TensorInfo,
)


def sketched(placement: Mapping[Operation, Device]) -> Sketch:
    """Returns a box for each operation, but reads join that of their variable."""
    builder = _Builder(placement)
    ops = _in_graph_order(placement)
    for op in ops:
        builder.add(op)
    for op in ops:
        builder.connect(op)
    return builder.sketch()


def with_reasons(diagram: Diagram, explanation: Explanation) -> Diagram:
    """Adds the reasons of unfolded operations, and the predicted time, to a diagram."""
    boxes = tuple(_reasoned(box, explanation) for box in diagram.boxes)
    prediction = Prediction(
        explanation.strategy, explanation.predicted_seconds, explanation.lower_bound
    )
    return Diagram(boxes, diagram.arrows, prediction)


def _reasoned(box: Box, explanation: Explanation) -> Box:
    if box.members:
        return box
    return replace(
        box, ops=tuple(replace(op, reason=explanation.reason(op.name)) for op in box.ops)
    )


def _in_graph_order(ops: Collection[Operation]) -> list[Operation]:
    graphs = dict.fromkeys(op.graph for op in ops)
    return [op for graph in graphs for op in graph.get_operations() if op in ops]


@dataclass(eq=False, slots=True)
class _Draft:
    """A box under construction."""

    kind: BoxKind
    name: str
    device: Device
    made_at: str
    ops: list[OpInfo] = field(default_factory=list)
    state: StateInfo | None = None
    fed: TensorInfo | None = None

    def finished(self) -> Box:
        return Box(
            self.kind, self.name, self.device, tuple(self.ops), self.state, self.fed, self.made_at
        )


class _Builder:
    def __init__(self, placement: Mapping[Operation, Device]) -> None:
        self._placement = placement
        self._draft_of: dict[Operation, _Draft] = {}
        self._states: dict[tuple[str, Device], _Draft] = {}
        self._feeds: dict[tuple[Tensor, Device], _Draft] = {}
        self._values: dict[Tensor, TensorInfo] = {}
        self._specs: dict[Hashable, TensorSpec] = {}
        self._flows: dict[tuple[_Draft, _Draft, Flow], dict[TensorInfo, None]] = {}

    def add(self, op: Operation) -> None:
        """Adds an operation to the box of its state, or as a box of its own."""
        device = self._placement[op]
        if op.eqn.primitive in HANDLES:
            draft = self._state(op, device)
        elif op.eqn.primitive is read_p and not op.control_inputs:
            draft = self._state_box(op, op.eqn.params["variable"], device)
        else:
            kind = BoxKind.ACCESS if state_of(op.eqn) else BoxKind.OPERATION
            draft = _Draft(kind, op.name, device, op.origin)
        draft.ops.append(self._op(op))
        self._draft_of[op] = draft

    def connect(self, op: Operation) -> None:
        """Adds the arrows into an operation, and those between it and its state."""
        draft = self._draft_of[op]
        for tensor in op.inputs:
            source = self._draft_of.get(tensor.op) or self._feed(tensor, draft.device)
            self._flow(source, draft, Flow.DATA)[self._value(tensor)] = None
        for before in op.control_inputs:
            if before in self._draft_of:
                self._flow(self._draft_of[before], draft, Flow.CONTROL)
        for ref in state_of(op.eqn) if draft.kind is BoxKind.ACCESS else ():
            state = self._state_box(op, ref, draft.device)
            takes = op.eqn.primitive is read_p or (op.eqn.primitive is host_p and op.outputs)
            self._flow(*((state, draft) if takes else (draft, state)), Flow.STATE)

    def sketch(self) -> Sketch:
        """Returns the boxes and flows so far."""
        drafts = list(self._drafts())
        index = {draft: number for number, draft in enumerate(drafts)}
        links = [
            (index[source], index[target], flow, values)
            for (source, target, flow), values in self._flows.items()
        ]
        return Sketch([draft.finished() for draft in drafts], links)

    def _drafts(self) -> Iterator[_Draft]:
        # State comes first because the layout begins a cycle with the first box on it.
        yield from self._states.values()
        yield from self._feeds.values()
        yield from (d for d in self._draft_of.values() if d.kind is not BoxKind.STATE)

    def _state_box(self, op: Operation, ref: VariableRef | ResourceRef, device: Device) -> _Draft:
        """Returns the box of the variable or resource that an operation uses."""
        draft = self._state(op.graph.handle_of(ref), device)
        draft.state = _state(ref)
        return draft

    def _state(self, handle: Operation, device: Device) -> _Draft:
        new = _Draft(BoxKind.STATE, handle.name, device, handle.origin)
        return self._states.setdefault((handle.name, device), new)

    def _feed(self, tensor: Tensor, device: Device) -> _Draft:
        fed = self._value(tensor)
        new = _Draft(BoxKind.FEED, tensor.name, device, tensor.op.origin, fed=fed)
        return self._feeds.setdefault((tensor, device), new)

    def _flow(self, source: _Draft, target: _Draft, flow: Flow) -> dict[TensorInfo, None]:
        return self._flows.setdefault((source, target, flow), {})

    def _op(self, op: Operation) -> OpInfo:
        outputs: Iterable[TensorInfo] = map(self._value, op.outputs)
        uses = tuple(ref.name for ref in state_of(op.eqn))
        is_call = op.eqn.primitive.name == "jit"
        return OpInfo(op.name, op.type, tuple(outputs), uses, is_call=is_call)

    def _value(self, tensor: Tensor) -> TensorInfo:
        if tensor not in self._values:
            self._values[tensor] = TensorInfo(tensor.name, self._spec(tensor.aval))
        return self._values[tensor]

    def _spec(self, aval: AbstractValue) -> TensorSpec:
        """Returns the shape and dtype of a value, the same object for equal ones."""
        key = aval.shape, aval.dtype
        if key not in self._specs:
            self._specs[key] = TensorSpec(declared(aval.shape), aval.dtype)
        return self._specs[key]


def _state(ref: VariableRef | ResourceRef) -> StateInfo:
    if isinstance(ref, ResourceRef):
        return StateInfo(ref.kind, ref.name, ref.container, None)
    return StateInfo(
        "variable", ref.name, ref.container, TensorSpec(declared(ref.shape), ref.dtype)
    )
