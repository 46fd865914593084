"""`EffectOrder`: the order in which operations use variables and resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax.extend.core as jex

from jflow.compiler.graph.callbacks import has_effects
from jflow.compiler.graph.primitives import (
    EFFECTS,
    READS,
    WRITES,
    ResourceRef,
    VariableRef,
    host_p,
    is_stateful,
    state_of,
)

if TYPE_CHECKING:  # a graph orders what it adds
    from jflow.compiler.graph.graph import Operation

_Ref = VariableRef | ResourceRef


class EffectOrder:
    """Orders the uses of each variable or resource; reads of a variable may be reordered.

    Operations with JAX effects (callbacks, and loops that contain callbacks) keep their order.

    Args:
      is_total: whether all changes of state keep their order, and each comes after the reads before
        it and before those after it, as in a program that does one thing after another.

    Attributes:
      effects: the operations so far that run even if their results are not used.
    """

    def __init__(self, *, is_total: bool = False) -> None:
        self._is_total = is_total
        self.effects: list[Operation] = []
        self._last_effects: Sequence[Operation] = ()
        self._reads_since: list[Operation] = []
        self._last_change: dict[_Ref, Operation] = {}
        self._reads: dict[_Ref, list[Operation]] = {}

    def before(self, eqn: jex.JaxprEqn) -> list[Operation]:
        """Returns the operations that must run before an equation's operation."""
        if self._is_total and is_stateful(eqn):
            reads = () if eqn.primitive in READS else self._reads_since
            return [*self._last_effects, *reads]
        earlier: list[Operation] = []
        if has_effects(eqn):
            earlier.extend(self._last_effects)
        for ref in state_of(eqn):
            if ref in self._last_change:
                earlier.append(self._last_change[ref])
            if _changes(eqn):
                earlier.extend(self._reads.get(ref, ()))
        return earlier

    def add(self, op: Operation) -> None:
        """Records the operation of the next equation."""
        if self._is_total and is_stateful(op.eqn):
            self._add_in_total_order(op)
            return
        used = state_of(op.eqn)
        if has_effects(op.eqn):
            self.add_together([op])
        elif op.eqn.primitive in EFFECTS or (used and op.eqn.primitive is host_p):
            self.effects.append(op)
        for ref in used:
            if _changes(op.eqn):
                self._last_change[ref] = op
                self._reads.pop(ref, None)
            else:
                self._reads.setdefault(ref, []).append(op)

    def _add_in_total_order(self, op: Operation) -> None:
        if op.eqn.primitive in READS:
            self.effects.append(op)  # what comes after all of them comes after it
            self._reads_since.append(op)
        else:
            self.add_together([op])

    def add_together(self, ops: Sequence[Operation]) -> None:
        """Records operations with JAX effects that may run side by side."""
        if ops:
            self.effects.extend(ops)
            self._last_effects = ops
            self._reads_since = []


def _changes(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation changes state."""
    return eqn.primitive in WRITES or eqn.primitive is host_p
