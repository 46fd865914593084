"""Snapshots of value tables: they hold no values."""

from __future__ import annotations

from jflow.state.resources.snapshot import PlainSnapshot
from jflow.state.resources.value_table.spec import ValueTableSpec


class ValueTableSnapshot(PlainSnapshot, frozen=True):
    """What is saved of a value table, whose values are no state of a program: only what it is.

    Attributes:
      spec: the definition of the table.
    """

    what = "snapshot of a value table"

    spec: ValueTableSpec
