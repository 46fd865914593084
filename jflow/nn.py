"""`jax.nn` on graph tensors."""

import jax.nn

from jflow.api.lifted import lift_namespace as _lift_namespace
from jflow.client.variables import embedding_lookup as embedding_lookup

__getattr__, __dir__ = _lift_namespace(globals(), jax.nn)
