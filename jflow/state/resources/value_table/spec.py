"""The definition of value tables."""

from __future__ import annotations

from jflow.state.resources.spec import Spec


class ValueTableSpec(Spec, frozen=True):
    """The spec of every value table; it has no parameters."""

    what = "value table"
