"""Opens checkpoints of either format."""

from __future__ import annotations

import os

from jflow.checkpoint.checkpoint import Checkpoint
from jflow.checkpoint.native import NativeCheckpoint
from jflow.checkpoint.prefix import ANYWHERE, locate
from jflow.records.allowed_directories import AllowedDirectories


def open_checkpoint(
    prefix: str | os.PathLike[str], allowed: AllowedDirectories = ANYWHERE
) -> Checkpoint:
    """Opens a checkpoint that jflow or Orbax wrote.

    Args:
      prefix: the prefix, such as "runs/model.ckpt-100", or a directory that Orbax wrote.
      allowed: where checkpoints may be.

    Raises:
      DataLossError: if it is damaged.
      InvalidArgumentError: if it is not a valid prefix.
      NotFoundError: if there is no such checkpoint.
      PermissionDeniedError: if it is outside the roots, or the process may not read it.
    """
    return NativeCheckpoint(locate(prefix, allowed))
