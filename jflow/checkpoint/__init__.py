"""Checkpoints on disk: writing, committing and reading them."""

from jflow.checkpoint.checkpoint import Checkpoint as Checkpoint
from jflow.checkpoint.checkpoint import SavedTensor as SavedTensor
from jflow.checkpoint.commit import commit as commit
from jflow.checkpoint.commit import delete as delete
from jflow.checkpoint.commit import exists as exists
from jflow.checkpoint.commit import sweep as sweep
from jflow.checkpoint.item import Item as Item
from jflow.checkpoint.layout import ShardRecord as ShardRecord
from jflow.checkpoint.opening import open_checkpoint as open_checkpoint
from jflow.checkpoint.prefix import ANYWHERE as ANYWHERE
from jflow.checkpoint.prefix import CheckpointPrefix as CheckpointPrefix
from jflow.checkpoint.prefix import checkpoint_roots as checkpoint_roots
from jflow.checkpoint.prefix import locate as locate
from jflow.checkpoint.shard import write_shard as write_shard
