"""`InParts`: what variables that consist of several variables have in common."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, ClassVar

from jflow.base.cards import MAX_ROWS, Card, Carded, CardTable
from jflow.base.handles import Uncopyable
from jflow.base.values import Dtype, TensorShape, declared
from jflow.client.ops import Variable
from jflow.client.ops.variable import VariableLike, value_facts
from jflow.compiler.graph import Symbolic


class InParts(Carded, Uncopyable, Symbolic):
    """A variable that consists of several variables, over which it iterates."""

    _instead_of_copy = VariableLike._instead_of_copy
    _called: ClassVar[str]
    """What its parts are called."""

    _name: str
    _shape: tuple[int, ...]
    _parts: Sequence[Variable]

    @property
    def name(self) -> str:
        """The name of the whole, without ":0", which prefixes those of its parts."""
        return self._name

    @property
    def shape(self) -> TensorShape:
        """The shape of the whole."""
        return TensorShape.of(self._shape)

    @property
    def dtype(self) -> Dtype:
        """The dtype of the elements."""
        return self._parts[0].dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    def __iter__(self) -> Any:
        return iter(self._parts)

    def __contains__(self, part: object) -> bool:
        return part in self._parts

    def __len__(self) -> int:
        return len(self._parts)

    def __repr__(self) -> str:
        facts = f"shape={declared(self.shape)} dtype={self.dtype.name} {self._called}={len(self)}"
        return f"<jflow.{type(self).__name__} {self._name!r} {facts}>"

    def _card(self) -> Card:
        rows = [
            (part.name, str(declared(part.shape)), str(part.operations.ref.spec))
            for part in islice(self, MAX_ROWS)
        ]
        table = CardTable(self._called, ("name", "shape", "device"), rows, len(self))
        return Card(type(self).__name__, self._name, value_facts(self), (table,))
