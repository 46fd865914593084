"""A segment: operations of one device and stage that become one XLA program."""

from __future__ import annotations

from dataclasses import dataclass

from jflow.cluster import Device
from jflow.graph import Operation, Tensor, VariableRef


@dataclass(frozen=True)
class Segment:
    """A pure program cut out of the graph.

    It takes the old values of `reads`, then `inputs`, and gives the new values of `writes`,
    then `outputs`.
    """

    device: Device
    ops: tuple[Operation, ...]
    reads: tuple[VariableRef, ...]
    inputs: tuple[Tensor, ...]
    writes: tuple[VariableRef, ...]
    outputs: tuple[Tensor, ...]

    @property
    def donated(self) -> tuple[int, ...]:
        """Numbers of the program's arguments whose memory its results may take."""
        return tuple(i for i, ref in enumerate(self.reads) if ref in self.writes)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute."""
        has_effects = any(op.eqn.effects for op in self.ops)
        return not self.writes and not self.outputs and not has_effects
