"""`jax.numpy` on graph tensors."""

import jax.numpy

from jflow.api.lifted import offered as _offered

__getattr__, __dir__ = _offered(globals(), jax.numpy)
