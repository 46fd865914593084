"""The placement of the steps of one session: state stays where the first of them put it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from jflow.cluster import Device
from jflow.graph import Operation
from jflow.graph.primitives import HANDLES
from jflow.placement.group import owner_op
from jflow.placement.place import assign
from jflow.placement.strategy import Assignment, Inventory, Placement, Strategy

_LOG = logging.getLogger(__name__)

DEFAULT_STRATEGY: Strategy = assign
"""The strategy of every step."""


class Placer:
    """Remembers where the steps of a session have put state, and logs their placements.

    Args:
      soft: whether a device type or index that is not there is dropped.
      log: whether to log where each operation goes, once.
      strategy: places each step.
    """

    def __init__(self, soft: bool, log: bool, strategy: Strategy = DEFAULT_STRATEGY) -> None:
        self._soft = soft
        self._log = log
        self._strategy = strategy
        self._handles: dict[Operation, Device] = {}
        self._logged: dict[Operation, Device] = {}

    def assign(self, ops: Sequence[Operation], inventory: Inventory) -> Assignment:
        """The first half of the placement of a step. Raises as `Strategy`."""
        return self._strategy(ops, inventory, soft=self._soft, handles=self._handles)

    def place(self, assignment: Assignment, inventory: Inventory) -> Placement:
        """The placement of a step, which is remembered and logged. Raises as `Assignment.place`."""
        placement = assignment.place(inventory.devices)
        self._record(placement)
        return placement

    def _record(self, placement: Placement) -> None:
        for op, device in placement.items():
            owner = owner_op(op)
            if owner.eqn.primitive in HANDLES:
                self._handles[owner] = device
            if self._log and self._logged.get(op) != device:
                self._logged[op] = device
                # Python shows warnings by default, and setting this option is a wish to see them.
                _LOG.warning("%s: (%s): %s", op.name, op.type, device)
