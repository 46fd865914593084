"""Checkpoints: `jflow.checkpoint.save` and `restore`, and what is on disk.

The public names `save` and `restore` are of higher rooms, and are imported when they are first
used; a task that only writes its part needs none of them.
"""

from typing import TYPE_CHECKING

from jflow.api import on_first_use as _on_first_use
from jflow.checkpoint.checkpoint import Checkpoint as Checkpoint
from jflow.checkpoint.checkpoint import SavedTensor as SavedTensor
from jflow.checkpoint.commit import commit as commit
from jflow.checkpoint.commit import delete as delete
from jflow.checkpoint.commit import exists as exists
from jflow.checkpoint.commit import sweep as sweep
from jflow.checkpoint.item import Item as Item
from jflow.checkpoint.layout import ShardRecord as ShardRecord
from jflow.checkpoint.opening import open_checkpoint as open_checkpoint
from jflow.checkpoint.orbax import write_orbax as write_orbax
from jflow.checkpoint.prefix import ANYWHERE as ANYWHERE
from jflow.checkpoint.prefix import CheckpointPrefix as CheckpointPrefix
from jflow.checkpoint.prefix import checkpoint_roots as checkpoint_roots
from jflow.checkpoint.prefix import locate as locate
from jflow.checkpoint.shard import write_shard as write_shard

if TYPE_CHECKING:
    from jflow.api.checkpoint import SaveReport as SaveReport
    from jflow.api.checkpoint import restore as restore
    from jflow.api.checkpoint import save as save
else:
    __getattr__, _ = _on_first_use(globals(), "jflow.api.checkpoint")

    def __dir__():
        """The public names; those of the room are for the rooms above it."""
        public = ("Checkpoint", "SaveReport", "SavedTensor", "open_checkpoint", "restore", "save")
        return [*public, "write_orbax"]
