"""What an iterator state is made as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jflow.resources.attributes import Attributes
from jflow.resources.spec import Spec


@dataclass(frozen=True)
class PositionSpec(Spec):
    """The spec of every iterator state: they do not differ."""

    what = "iterator state"

    def to_attributes(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_attributes(cls, record: object) -> PositionSpec:
        Attributes(record, "iterator state", ())
        return cls()
