"""Steps that are cut into plans, and what tests ask about them."""

from __future__ import annotations

from dataclasses import dataclass

from jflow.base.cluster import Device, Task
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.bundle import Bundle
from jflow.compiler.graph.control import control_sources
from jflow.compiler.graph.primitives import group_p, variable_p
from jflow.compiler.partition import Lengths, partition
from jflow.plan import Run

DEVICES = [
    Device(Task("ps", 0), "CPU", 0),
    Device(Task("worker", 0), "CPU", 0),
    Device(Task("worker", 0), "GPU", 0),
]


@dataclass
class Case:
    """A step: its operations on devices, cut into plans."""

    ops: list[Operation]
    placement: dict[Operation, Device]
    fed: list[Tensor]
    fetched: list[Tensor]
    max_segment_ops: int = 1000
    sends_first: bool = False
    defers: bool = False

    def __post_init__(self):
        found = partition(
            self.ops,
            self.placement,
            self.fed,
            self.fetched,
            max_segment_ops=self.max_segment_ops,
            lengths=Lengths(lambda rest: self.sends_first, lambda group: self.defers),
        )
        self.plans = found.plans
        self.named = found.segments
        self.edges = found.edges
        self.segments = list(found.segments.values())
        self.running = [op for op in self.ops if op.eqn.primitive not in (group_p, variable_p)]

    def segment_of(self, run):
        """The segment that a `Run` runs, None if there is nothing to compute."""
        return None if run.program is None else self.named[run.program.digest]

    def steps(self, kind):
        """(device, stage, step) of every step of a kind, in the plans' order."""
        return [
            (plan.device, stage, step)
            for plan in self.plans
            for stage, steps in enumerate(plan.stages)
            for step in steps
            if isinstance(step, kind)
        ]

    def crossings(self):
        """What must cross: (tensor, target), and (operation, target) for bare signals."""
        found = set()
        for op in self.running:
            sources = [t for t in op.inputs if t not in self.fed]
            sources += [s for s in control_sources(op) if s in set(self.running)]
            for source in sources:
                producer = source.op if isinstance(source, Tensor) else source
                if self.placement[producer] != self.placement[op]:
                    found.add((source, self.placement[op]))
        return found

    def sources_of(self, edge):
        """What an edge brings: tensors, or an operation whose end it signals."""
        value = self.edges[edge]
        return value.tensors if isinstance(value, Bundle) else (value,)

    def moments(self):
        """When an operation that is lowered runs: its stage and its place in its plan."""
        found = {}
        for plan in self.plans:
            place = 0
            for stage, steps in enumerate(plan.stages):
                for step in steps:
                    place += 1
                    segment = self.segment_of(step) if isinstance(step, Run) else None
                    for i, op in enumerate(segment.ops if segment else ()):
                        assert op not in found, "an operation is in two segments"
                        found[op] = (plan.device, stage, (place, i))
        return found
