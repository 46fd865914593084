"""The public names of `jflow.contrib.training`."""

from jflow.base import tracebacks as _tracebacks
from jflow.training.parameter_servers.device_setter import (
    GreedyLoadBalancingStrategy as GreedyLoadBalancingStrategy,
)
from jflow.training.parameter_servers.device_setter import RandomStrategy as RandomStrategy
from jflow.training.parameter_servers.device_setter import byte_size_load_fn as byte_size_load_fn

_tracebacks.end_here(globals())
