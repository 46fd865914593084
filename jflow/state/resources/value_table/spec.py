"""The definition of value tables."""

from __future__ import annotations

from dataclasses import dataclass

from jflow.state.resources.spec import Spec


@dataclass(frozen=True)
class ValueTableSpec(Spec):
    """The spec of every value table; it has no parameters."""

    what = "value table"
