"""`jax.numpy` on graph tensors."""

import jax.numpy

from jflow.api.lifted import lifted as _lifted

__getattr__, __dir__ = _lifted(globals(), jax.numpy)
