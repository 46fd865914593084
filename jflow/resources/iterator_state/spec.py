"""The definition of iterator states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jflow.resources.attributes import Attributes
from jflow.resources.spec import Spec


@dataclass(frozen=True)
class IteratorStateSpec(Spec):
    """The spec of every iterator state; it has no parameters."""

    what = "iterator state"

    def to_attributes(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_attributes(cls, record: object) -> IteratorStateSpec:
        Attributes(record, "iterator state", ())
        return cls()
