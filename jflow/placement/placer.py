"""Places the steps of one session, one after the other."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from jflow.cluster import Device
from jflow.graph import Operation
from jflow.graph.primitives import HOMES
from jflow.placement.group import anchor
from jflow.placement.place import Inventory, Placement, place

_LOG = logging.getLogger(__name__)


class Placer:
    """Places steps so that state stays where the first of them put it.

    Args:
      soft: whether a device type or index that is not there is dropped.
      log: whether to log where each operation goes, once.
    """

    def __init__(self, soft: bool, log: bool) -> None:
        self._soft = soft
        self._log = log
        self._homes: dict[Operation, Device] = {}
        self._logged: dict[Operation, Device] = {}

    def place(self, ops: Sequence[Operation], inventory: Inventory) -> Placement:
        """A device for each operation of a step. Raises as `place`."""
        placement = place(ops, inventory, soft=self._soft, homes=self._homes)
        for op, device in placement.items():
            owner = anchor(op)
            if owner.eqn.primitive in HOMES:
                self._homes[owner] = device
            if self._log and self._logged.get(op) != device:
                self._logged[op] = device
                # Python shows warnings by default, and whoever sets this option wants to see them.
                _LOG.warning("%s: (%s): %s", op.name, op.type, device)
        return placement
