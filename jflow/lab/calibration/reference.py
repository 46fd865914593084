"""How fast a machine is now, beside what it was when it was calibrated."""

from __future__ import annotations

import time

from jflow.base.closing import Closing
from jflow.lab.calibration.exchanges import reference_step
from jflow.lab.calibration.site import Site


class Reference(Closing):
    """The reference program on the first device of a target. Ends with its `with` block.

    What it takes over `Calibration.reference_seconds` is how much slower the machine is by now:
    processors that are shared with other machines change their speed within minutes.

    Args:
      target: "grpc://host:port", or "" for this process. Its other sessions must have ended when
        the block ends: the variables of the program are freed.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._site = Site(target, time.perf_counter)
        step = reference_step(self._site, self._site.devices[0])
        self._site.initialize()
        self._call = self._site.callable(step)

    def run(self) -> None:
        """Runs it once."""
        self._call()

    def _leave(self, failed: bool) -> None:
        self._site.__exit__(None, None, None)

    def __repr__(self) -> str:
        return f"<Reference of {self._target or 'this process'}>"
