"""`jax.lax` on graph tensors."""

import jax.lax

from jflow.api.lifted import offered as _offered

__getattr__, __dir__ = _offered(globals(), jax.lax)
