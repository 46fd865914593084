"""Summaries of steps for TensorBoard, under TensorFlow's name tf.summary."""

from typing import TYPE_CHECKING

from jflow.api import on_first_use as _on_first_use
from jflow.base import tracebacks as _tracebacks

if TYPE_CHECKING:
    from jflow.api.summary import *
else:
    __getattr__, __dir__ = _on_first_use(globals(), "jflow.api.summary")

_tracebacks.end_here(globals())
