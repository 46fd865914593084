"""Which loops and branches of a step are opened: on several devices, with state, calling Python.

XLA runs a loop as one program, on one device and without state, and a program on a server cannot
call a Python function of the client. Loops that need more are *opened* (`loops.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import jax.extend.core as jex

from jflow.base.cluster import DeviceSpec
from jflow.compiler.graph import request
from jflow.compiler.graph.callbacks import has_callback
from jflow.compiler.graph.hoisting import is_control_flow, spans_devices
from jflow.compiler.graph.primitives import is_stateful_control_flow

SameDevice = Callable[[Collection[DeviceSpec]], DeviceSpec | None]
"""Returns the device that all of some requests mean; None if they mean several."""


def _unknown(specs: Collection[DeviceSpec]) -> DeviceSpec | None:
    """Requests that differ mean several devices as long as no device is known."""


@dataclass(frozen=True)
class Opening:
    """Decides which loops and branches are opened.

    Attributes:
      is_exported: whether programs run on servers, where they cannot call Python.
      same_device: finds requests that differ, but mean one device.
    """

    is_exported: bool = False
    same_device: SameDevice = _unknown

    def changes(self, eqn: jex.JaxprEqn) -> bool:
        """Whether an equation is opened, or gets the one device that its body means."""
        return self._opens_always(eqn) or spans_devices(eqn)

    def opens(self, eqn: jex.JaxprEqn) -> bool:
        """Whether an equation is opened."""
        if self._opens_always(eqn):
            return True
        return spans_devices(eqn) and self._device_of(eqn) is None

    def whole(self, eqn: jex.JaxprEqn) -> jex.JaxprEqn:
        """Returns an equation with the one device that its body means, if it is not opened."""
        if self._opens_always(eqn) or not spans_devices(eqn):
            return eqn
        spec = self._device_of(eqn)
        return eqn if spec is None else request.replaced(eqn, request.resolved(spec, ()))

    def _opens_always(self, eqn: jex.JaxprEqn) -> bool:
        if is_stateful_control_flow(eqn):
            return True
        return self.is_exported and is_control_flow(eqn) and has_callback(eqn)

    def _device_of(self, eqn: jex.JaxprEqn) -> DeviceSpec | None:
        around = request.requested(eqn)
        inside = request.whole_requests_in_bodies(eqn)
        requests = [one.inside(around) for one in inside if not one.is_empty]
        if not all(one.is_resolved for one in requests):
            return None
        return self.same_device({one.spec for one in requests})


EVERY_KIND = Opening(is_exported=True)
"""Opens what any step may open."""
