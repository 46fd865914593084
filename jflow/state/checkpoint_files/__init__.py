"""Writing, committing and reading the files of checkpoints."""

from jflow.state.checkpoint_files.bundle_writer import write_tensorflow as write_tensorflow
from jflow.state.checkpoint_files.checkpoint import Checkpoint as Checkpoint
from jflow.state.checkpoint_files.checkpoint import SavedTensor as SavedTensor
from jflow.state.checkpoint_files.commit import commit as commit
from jflow.state.checkpoint_files.commit import delete as delete
from jflow.state.checkpoint_files.commit import exists as exists
from jflow.state.checkpoint_files.commit import sweep as sweep
from jflow.state.checkpoint_files.item import Item as Item
from jflow.state.checkpoint_files.layout import ShardRecord as ShardRecord
from jflow.state.checkpoint_files.opening import open_checkpoint as open_checkpoint
from jflow.state.checkpoint_files.orbax import write_orbax as write_orbax
from jflow.state.checkpoint_files.prefix import ANYWHERE as ANYWHERE
from jflow.state.checkpoint_files.prefix import CheckpointPrefix as CheckpointPrefix
from jflow.state.checkpoint_files.prefix import checkpoint_roots as checkpoint_roots
from jflow.state.checkpoint_files.prefix import local_path as local_path
from jflow.state.checkpoint_files.prefix import locate as locate
from jflow.state.checkpoint_files.shard import write_shard as write_shard
