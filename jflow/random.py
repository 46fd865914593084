"""`jax.random` on graph tensors."""

import jax.random

from jflow.api.lifted import lifted as _lifted

__getattr__, __dir__ = _lifted(globals(), jax.random)
