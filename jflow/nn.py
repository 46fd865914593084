"""`jax.nn` on graph tensors."""

import jax.nn

from jflow.api.lifted import lift_namespace as _lift_namespace
from jflow.client.variables import Embedding as Embedding
from jflow.client.variables import embedding_lookup as embedding_lookup
from jflow.client.variables import hash_ids as hash_ids

__getattr__, __dir__ = _lift_namespace(globals(), jax.nn)
