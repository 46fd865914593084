"""Commits, sweeps and deletes checkpoints.

The order of what reaches the disk makes a save atomic: all shards, under names of their own; the
manifest under a temporary name; its final name. A crash leaves the former checkpoint or the new one
whole, and in addition at most files that the next save removes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jflow.base.failpoints import failpoint
from jflow.errors import AbortedError, DataLossError, NotFoundError
from jflow.state.checkpoint_files.layout import (
    MAX_MANIFEST_BYTES,
    VERSION,
    Manifest,
    ShardRecord,
    is_bundle_shard,
    manifest_name,
    temporary_name,
    written_by,
)
from jflow.state.checkpoint_files.prefix import CheckpointPrefix
from jflow.state.checkpoint_files.storage import CheckpointStorage

_NOTHING: Mapping[str, str] = {}


def commit(
    prefix: CheckpointPrefix,
    save: str,
    shards: Sequence[ShardRecord],
    *,
    about: Mapping[str, str] = _NOTHING,
) -> None:
    """Atomically makes the shards of a save the checkpoint, and removes what it replaces.

    Args:
      prefix: the checkpoint.
      save: the number of the save.
      shards: what `write_shard` returned, on all tasks.
      about: short texts that `Checkpoint.about` gives back.

    Raises:
      AbortedError: if a shard is not there any more; the former checkpoint is kept.
      PermissionDeniedError: if the process may not write there.
      ResourceExhaustedError: if the disk or the quota is full; the former checkpoint is kept.
    """
    storage = prefix.storage
    for shard in shards:
        n_found = storage.size(prefix.file(shard.file))
        if n_found != shard.n_bytes:
            raise AbortedError(
                f"{storage.file(prefix.file(shard.file))!r} has {n_found} bytes, expected "
                f"{shard.n_bytes}: something removed it, or the tasks do not share this directory"
            )
    storage.sync()
    failpoint("checkpoint.before_manifest")
    manifest = Manifest(VERSION, save, dict(about), tuple(shards))
    temporary = temporary_name(prefix.name, save)
    storage.replace(manifest_name(prefix.name), manifest.to_file(), temporary)
    failpoint("checkpoint.committed")
    sweep(prefix)


def sweep(prefix: CheckpointPrefix) -> None:
    """Removes the files that failed saves left, of this checkpoint and of other steps of it.

    No save to the prefix, with any step, may be under way. Files that jflow did not write, and
    those of a checkpoint whose manifest cannot be read, are kept.
    """
    storage = prefix.storage
    current: dict[str, str | None] = {}
    for name in storage.names():
        written = written_by(name, prefix.name)
        if written is None:
            continue
        owner, save = written
        if owner not in current:
            current[owner] = _current_save(storage, owner)
        if current[owner] not in (save, None):
            storage.remove(name)


def delete(prefix: CheckpointPrefix) -> None:
    """Deletes a checkpoint, if it exists: first the manifest, so that no part of it can be read.

    It may be one of TensorFlow.

    Raises:
      PermissionDeniedError: if the process may not write there.
    """
    storage = prefix.storage
    storage.remove(manifest_name(prefix.name))
    storage.sync()
    for name in storage.names():
        written = written_by(name, prefix.name)
        is_own = written is not None and written[0] == prefix.name
        if is_own or is_bundle_shard(name, prefix.name):
            storage.remove(name)


def exists(prefix: CheckpointPrefix) -> bool:
    """Whether a checkpoint's manifest exists; its shards are not checked."""
    return prefix.storage.size(manifest_name(prefix.name)) is not None


def read_manifest(storage: CheckpointStorage, name: str) -> Manifest:
    """Reads the manifest of a checkpoint.

    Args:
      storage: the directory.
      name: the prefix of the checkpoint.

    Raises:
      DataLossError: if it is damaged.
      NotFoundError: if there is none.
    """
    with storage.open(manifest_name(name)) as file:
        if file.n_bytes > MAX_MANIFEST_BYTES:
            raise DataLossError(
                f"{file.path!r} is damaged: a manifest has at most {MAX_MANIFEST_BYTES} bytes, "
                f"this file has {file.n_bytes}"
            )
        return Manifest.from_file(file.read(0, file.n_bytes), file.path)


def _current_save(storage: CheckpointStorage, name: str) -> str | None:
    """Returns the save that a manifest names; "" if there is no manifest, None if it is damaged."""
    try:
        return read_manifest(storage, name).save
    except NotFoundError:
        return ""
    except DataLossError:
        return None
