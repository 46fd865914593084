"""Partitioners of variables, under the names of tf.distribute.experimental.partitioners."""

from jflow.base import tracebacks as _tracebacks
from jflow.training.parameter_servers import FixedShardsPartitioner as FixedShardsPartitioner
from jflow.training.parameter_servers import MaxSizePartitioner as MaxSizePartitioner
from jflow.training.parameter_servers import MinSizePartitioner as MinSizePartitioner
from jflow.training.parameter_servers import VariablePartitioner as _VariablePartitioner

Partitioner = _VariablePartitioner

_tracebacks.end_here(globals())
