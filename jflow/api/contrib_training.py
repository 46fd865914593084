"""The public names of `jflow.contrib.training`."""

from jflow.base import tracebacks as _tracebacks
from jflow.training.parameter_servers.load_balancing import (
    GreedyLoadBalancingStrategy as GreedyLoadBalancingStrategy,
)
from jflow.training.parameter_servers.load_balancing import RandomStrategy as RandomStrategy
from jflow.training.parameter_servers.load_balancing import byte_size_load_fn as byte_size_load_fn

_tracebacks.end_here(globals())
