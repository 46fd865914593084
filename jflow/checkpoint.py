"""Checkpoints: `jflow.checkpoint.save` and `restore`, and reading what was saved."""

from typing import TYPE_CHECKING

from jflow.api import on_first_use as _on_first_use
from jflow.base import tracebacks as _tracebacks

if TYPE_CHECKING:
    from jflow.api.checkpoint import *
else:
    __getattr__, __dir__ = _on_first_use(globals(), "jflow.api.checkpoint")

_tracebacks.end_here(globals())
