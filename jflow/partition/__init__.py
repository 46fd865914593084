"""Partition of placed graphs into plans: pruning, stages, segments and transfers."""

from jflow.partition.prune import prune as prune
from jflow.partition.segment import Segment as Segment
from jflow.partition.split import Partition as Partition
from jflow.partition.split import partition as partition
from jflow.partition.stages import Lengths as Lengths
