"""Partition of placed graphs into plans: pruning, stages, segments and transfers."""

from jflow.compiler.partition.builder import Segment as Segment
from jflow.compiler.partition.prune import prune as prune
from jflow.compiler.partition.split import Partition as Partition
from jflow.compiler.partition.split import partition as partition
from jflow.compiler.partition.stages import Lengths as Lengths
