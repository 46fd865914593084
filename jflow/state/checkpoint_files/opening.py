"""Opens checkpoints of jflow, TensorFlow or Orbax."""

from __future__ import annotations

import os

from jflow.errors import PermissionDeniedError
from jflow.state.checkpoint_files.bundle import BundleCheckpoint
from jflow.state.checkpoint_files.checkpoint import Checkpoint
from jflow.state.checkpoint_files.commit import exists
from jflow.state.checkpoint_files.layout import MANIFEST_MAGIC, manifest_name
from jflow.state.checkpoint_files.native import NativeCheckpoint
from jflow.state.checkpoint_files.orbax import OrbaxCheckpoint, item_of
from jflow.state.checkpoint_files.prefix import ANYWHERE, CheckpointPrefix, locate
from jflow.state.records.allowed_directories import AllowedDirectories


def open_checkpoint(
    prefix: str | os.PathLike[str], allowed: AllowedDirectories = ANYWHERE
) -> Checkpoint:
    """Opens a checkpoint that jflow, TensorFlow or Orbax wrote.

    Args:
      prefix: the prefix, such as "runs/model.ckpt-100", of jflow or of TensorFlow's V2 format; or a
        directory that Orbax wrote.
      allowed: where checkpoints may be.

    Raises:
      DataLossError: if it is damaged.
      InvalidArgumentError: if it is not a valid prefix.
      NotFoundError: if there is no such checkpoint.
      PermissionDeniedError: if it is outside the roots, or the process may not read it.
      UnimplementedError: if it is one of Orbax, and `orbax-checkpoint` is not installed; or one of
        TensorFlow, and compressed or big-endian.
    """
    located = locate(prefix, allowed)
    if not exists(located):
        directory = item_of(located.path)
        if directory is not None:
            located.close()
            return _open_orbax(directory, allowed)
    elif _is_bundle(located):
        return BundleCheckpoint(located)
    return NativeCheckpoint(located)


def _is_bundle(located: CheckpointPrefix) -> bool:
    """Whether the index of a checkpoint is not a manifest of jflow's; closes it after an error."""
    try:
        with located.storage.open(manifest_name(located.name)) as file:
            return file.read(0, min(len(MANIFEST_MAGIC), file.n_bytes)) != MANIFEST_MAGIC
    except BaseException:
        located.close()
        raise


def _open_orbax(directory: str, allowed: AllowedDirectories) -> Checkpoint:
    if not allowed.is_anywhere:
        raise PermissionDeniedError(
            f"{directory!r} is a checkpoint of Orbax, which follows links when it reads; a task "
            "with checkpoint roots opens checkpoints of jflow only"
        )
    return OrbaxCheckpoint(directory)
