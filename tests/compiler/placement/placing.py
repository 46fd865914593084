"""Placement by the rules in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jflow.compiler.graph import Operation
from jflow.compiler.placement import Inventory, Placement, assign


def place(ops: Sequence[Operation], inventory: Inventory, **options: Any) -> Placement:
    """A device for each operation; the inventory has the devices of all tasks."""
    return assign(ops, inventory, **options).place(inventory.devices)
