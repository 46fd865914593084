"""The placement lab: strategies, random graphs, a simulator, measurements, calibrations."""

from typing import TYPE_CHECKING

from jflow.api import on_first_use as _on_first_use

if TYPE_CHECKING:
    from jflow.lab.public import *
else:
    __getattr__, __dir__ = _on_first_use(globals(), "jflow.lab.public")
