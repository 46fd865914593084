"""`CheckpointPrefix`: the directory and the name of a checkpoint, with the right to use them."""

from __future__ import annotations

import os

from jflow.base.handles import Closing
from jflow.errors import InvalidArgumentError
from jflow.state.checkpoint_files.local import LocalStorage
from jflow.state.checkpoint_files.remote import SEPARATOR, RemoteStorage
from jflow.state.checkpoint_files.storage import CheckpointStorage
from jflow.state.records.allowed_directories import CHECKPOINTS, AllowedDirectories

ANYWHERE = AllowedDirectories.anywhere(CHECKPOINTS)
"""Where checkpoints may be if the caller is the user whose process this is."""


def checkpoint_roots(paths: list[str]) -> AllowedDirectories:
    """The directories below which alone a task uses checkpoints.

    Raises:
      NotFoundError: if one of them is not a directory.
    """
    return AllowedDirectories(paths, CHECKPOINTS)


class CheckpointPrefix(Closing):
    """The prefix of a checkpoint's files, in an open directory.

    Args:
      storage: the directory, which this closes.
      name: the prefix of the names of files.

    Attributes:
      storage, name: as the arguments.
    """

    def __init__(self, storage: CheckpointStorage, name: str) -> None:
        self.storage = storage
        self.name = name

    @property
    def path(self) -> str:
        """The whole prefix, without links."""
        return self.storage.file(self.name)

    def file(self, suffix: str) -> str:
        """The name of a file of the checkpoint."""
        return f"{self.name}.{suffix}"

    def close(self) -> None:
        """Closes the directory."""
        self.storage.close()

    def _leave(self, failed: bool) -> None:
        self.close()


def local_path(path: str) -> str:
    """A path of this machine for the URL of a file, "file:///…"; any other one unchanged."""
    return path.removeprefix("file://")


def locate(
    prefix: str | os.PathLike[str], allowed: AllowedDirectories = ANYWHERE, *, makes: bool = False
) -> CheckpointPrefix:
    """Opens the directory of a checkpoint that exists or will be written.

    Args:
      prefix: such as "runs/model.ckpt-100", or a URL: of a file, or one that `etils.epath` opens.
      allowed: where checkpoints may be.
      makes: whether its directory is made, with those above it, if it does not exist.

    Raises:
      InvalidArgumentError: if it is not a valid prefix.
      NotFoundError: if the directory does not exist.
      PermissionDeniedError: if it is outside the roots, or the process may not use it.
    """
    text = local_path(os.fspath(prefix))
    directory, _, name = text.rpartition("/")
    if name in ("", ".", "..") or "\0" in name:
        raise InvalidArgumentError(
            f"{text!r} is not a prefix of a checkpoint; expected one such as 'runs/model.ckpt-100'"
        )
    if SEPARATOR in text:
        allowed.check_url(text)
        return CheckpointPrefix(RemoteStorage(directory), name)
    if not directory:
        directory = "/" if text.startswith("/") else "."
    return CheckpointPrefix(LocalStorage(*allowed.directory(directory, makes=makes)), name)
