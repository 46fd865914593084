"""`jax.random` on graph tensors."""

import jax.random

from jflow.api.lifted import offered as _offered

__getattr__, __dir__ = _offered(globals(), jax.random)
