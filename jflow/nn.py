"""`jax.nn` on graph tensors."""

import jax.nn

from jflow.api.lifted import lifted as _lifted

__getattr__, __dir__ = _lifted(globals(), jax.nn)
