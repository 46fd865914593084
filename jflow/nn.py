"""`jax.nn` on graph tensors."""

import jax.nn

from jflow.api.lifted import offered as _offered
from jflow.client.variables import embedding_lookup as embedding_lookup

__getattr__, __dir__ = _offered(globals(), jax.nn)
