"""Initial values of variables, under TensorFlow's name tf.initializers."""

from jflow.api.missing import refuse_missing as _refuse_missing
from jflow.base import tracebacks as _tracebacks
from jflow.client import ops as _ops
from jflow.client.ops import tables_initializer as tables_initializer
from jflow.client.variables import he_normal as he_normal
from jflow.client.variables import he_uniform as he_uniform
from jflow.client.variables import initializers as _initializers
from jflow.client.variables import lecun_normal as lecun_normal
from jflow.client.variables import lecun_uniform as lecun_uniform

global_variables = _ops.global_variables_initializer
local_variables = _ops.local_variables_initializer
variables = _ops.variables_initializer
constant = _initializers.Constant
glorot_normal = _initializers.GlorotNormal
glorot_uniform = _initializers.GlorotUniform
identity = _initializers.Identity
ones = _initializers.Ones
orthogonal = _initializers.Orthogonal
random_normal = _initializers.RandomNormal
random_uniform = _initializers.RandomUniform
truncated_normal = _initializers.TruncatedNormal
variance_scaling = _initializers.VarianceScaling
zeros = _initializers.Zeros

__getattr__ = _refuse_missing(globals())

_tracebacks.end_here(globals())
