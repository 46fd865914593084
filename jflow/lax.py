"""`jax.lax` on graph tensors."""

import jax.lax

from jflow.api.lifted import lifted as _lifted

__getattr__, __dir__ = _lifted(globals(), jax.lax)
