"""`Segment`: operations of one device and stage that become one XLA program."""

from __future__ import annotations

from dataclasses import dataclass

from jflow.base.cluster import Device
from jflow.compiler.graph import Operation, Tensor, VariableRef
from jflow.compiler.graph.bundle import Bundle


@dataclass(frozen=True)
class Segment:
    """A part of the graph that becomes one pure program.

    The program takes the old values of `reads`, then `inputs`, and returns the new values of
    `writes`, then `outputs`.
    """

    device: Device
    ops: tuple[Operation, ...]
    reads: tuple[VariableRef, ...]
    inputs: tuple[Tensor | Bundle, ...]
    writes: tuple[VariableRef, ...]
    outputs: tuple[Tensor | Bundle, ...]

    @property
    def donated(self) -> tuple[int, ...]:
        """Positions of the arguments whose memory the results may reuse."""
        return tuple(i for i, ref in enumerate(self.reads) if ref in self.writes)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute."""
        has_effects = any(op.eqn.effects for op in self.ops)
        return not self.writes and not self.outputs and not has_effects
