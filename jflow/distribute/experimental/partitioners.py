"""Partitioners of variables, under the names of tf.distribute.experimental.partitioners."""

from jflow.base import tracebacks as _tracebacks
from jflow.client.variables.partitioners import FixedShardsPartitioner as FixedShardsPartitioner
from jflow.client.variables.partitioners import MaxSizePartitioner as MaxSizePartitioner
from jflow.client.variables.partitioners import MinSizePartitioner as MinSizePartitioner
from jflow.client.variables.partitioners import VariablePartitioner as _VariablePartitioner

Partitioner = _VariablePartitioner

_tracebacks.end_here(globals())
