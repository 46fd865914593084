"""Load balancing of variables, under TensorFlow's name tf.contrib.training."""

from typing import TYPE_CHECKING

from jflow.api import on_first_use as _on_first_use
from jflow.base import tracebacks as _tracebacks

if TYPE_CHECKING:
    from jflow.api.contrib_training import *
else:
    __getattr__, __dir__ = _on_first_use(globals(), "jflow.api.contrib_training")

_tracebacks.end_here(globals())
