"""`jax.lax` on graph tensors."""

import jax.lax

from jflow.api.lifted import lift_namespace as _lift_namespace

__getattr__, __dir__ = _lift_namespace(globals(), jax.lax)
