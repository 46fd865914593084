"""The order in which operations use a variable."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import jax.extend.core as jex

from jflow.graph.primitives import ACCESSES, EFFECTS, WRITES, VariableRef


class HasEquation(Protocol):
    """An operation, as far as its order is concerned."""

    @property
    def eqn(self) -> jex.JaxprEqn:
        """The equation that it is."""


O = TypeVar("O", bound=HasEquation)  # noqa: E741 - an operation


class StateOrder(Generic[O]):
    """Keeps accesses to one variable in their order: reads between writes may change places.

    Attributes:
      effects: the operations so far that run although nobody may need their results.
    """

    def __init__(self) -> None:
        self.effects: list[O] = []
        self._last_write: dict[VariableRef, O] = {}
        self._reads: dict[VariableRef, list[O]] = {}

    def before(self, eqn: jex.JaxprEqn) -> list[O]:
        """The operations that must run before the one of an equation."""
        if eqn.primitive not in ACCESSES:
            return []
        ref = eqn.params["variable"]
        last = [self._last_write[ref]] if ref in self._last_write else []
        return [*last, *self._reads.get(ref, ())] if eqn.primitive in WRITES else last

    def add(self, op: O) -> None:
        """Notes the operation of the next equation."""
        if op.eqn.primitive in EFFECTS:
            self.effects.append(op)
        if op.eqn.primitive in WRITES:
            self._last_write[op.eqn.params["variable"]] = op
            self._reads.pop(op.eqn.params["variable"], None)
        elif op.eqn.primitive in ACCESSES:
            self._reads.setdefault(op.eqn.params["variable"], []).append(op)
