"""`jax.nn` on graph tensors."""

import jax.nn

from jflow.api.lifted import offered as _offered

__getattr__, __dir__ = _offered(globals(), jax.nn)
