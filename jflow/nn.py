"""`jax.nn` on graph tensors."""

from typing import Any as _Any

import jax.nn

from jflow.api.lifted import lift_namespace as _lift_namespace
from jflow.client.ops.lift import operation as _operation
from jflow.client.ops.math.elementwise import sigmoid as sigmoid
from jflow.client.ops.math.elementwise import tanh as tanh
from jflow.client.ops.math.losses import (
    sigmoid_cross_entropy_with_logits as sigmoid_cross_entropy_with_logits,
)
from jflow.client.ops.math.losses import (
    softmax_cross_entropy_with_logits as softmax_cross_entropy_with_logits,
)
from jflow.client.ops.math.losses import (
    softmax_cross_entropy_with_logits_v2 as softmax_cross_entropy_with_logits_v2,
)
from jflow.client.ops.math.losses import (
    sparse_softmax_cross_entropy_with_logits as sparse_softmax_cross_entropy_with_logits,
)
from jflow.client.ops.math.losses import (
    weighted_cross_entropy_with_logits as weighted_cross_entropy_with_logits,
)
from jflow.client.ops.math.neural import avg_pool as avg_pool
from jflow.client.ops.math.neural import batch_normalization as batch_normalization
from jflow.client.ops.math.neural import bias_add as bias_add
from jflow.client.ops.math.neural import conv2d as conv2d
from jflow.client.ops.math.neural import crelu as crelu
from jflow.client.ops.math.neural import depthwise_conv2d as depthwise_conv2d
from jflow.client.ops.math.neural import in_top_k as in_top_k
from jflow.client.ops.math.neural import l2_loss as l2_loss
from jflow.client.ops.math.neural import l2_normalize as l2_normalize
from jflow.client.ops.math.neural import lrn as lrn
from jflow.client.ops.math.neural import max_pool as max_pool
from jflow.client.ops.math.neural import moments as moments
from jflow.client.ops.math.neural import separable_conv2d as separable_conv2d
from jflow.client.ops.math.neural import softsign as softsign
from jflow.client.ops.math.neural import top_k as top_k
from jflow.client.ops.math.neural import xw_plus_b as xw_plus_b
from jflow.client.ops.math.neural import zero_fraction as zero_fraction
from jflow.client.ops.random import dropout as dropout
from jflow.client.variables import Embedding as Embedding
from jflow.client.variables import embedding_lookup as embedding_lookup
from jflow.client.variables import embedding_lookup_sparse as embedding_lookup_sparse
from jflow.client.variables import hash_ids as hash_ids

avg_pool2d = avg_pool_v2 = avg_pool
depthwise_conv2d_native = depthwise_conv2d
local_response_normalization = lrn
max_pool2d = max_pool_v2 = max_pool


def leaky_relu(features: _Any, alpha: _Any = 0.2, name: str | None = None) -> _Any:
    """Returns the features where they are positive, and `alpha` times them elsewhere.

    Args:
      features: T[...].
      alpha: the slope on the negative side. `jax.nn.leaky_relu` has 0.01.
      name: name of the operation.
    """
    return _leaky_relu(features, alpha, name=name)


def _leaky(features: _Any, alpha: _Any) -> _Any:
    # Not JAX's function, whose gradient at zero is 1, in place of TensorFlow's `alpha`.
    return jax.numpy.where(features > 0, features, alpha * features)


_leaky_relu = _operation(_leaky, "LeakyRelu")

__getattr__, __dir__ = _lift_namespace(globals(), jax.nn)
