"""Load balancing of variables, under TensorFlow's name tf.contrib.training."""

from jflow.api.missing import refuse_missing as _refuse_missing
from jflow.base import tracebacks as _tracebacks
from jflow.training.parameter_servers.device_setter import (
    GreedyLoadBalancingStrategy as GreedyLoadBalancingStrategy,
)
from jflow.training.parameter_servers.device_setter import RandomStrategy as RandomStrategy
from jflow.training.parameter_servers.device_setter import byte_size_load_fn as byte_size_load_fn

__getattr__ = _refuse_missing(globals())

_tracebacks.end_here(globals())
