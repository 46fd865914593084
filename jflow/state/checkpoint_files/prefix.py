"""`CheckpointPrefix`: an open directory and the prefix of a checkpoint's files in it."""

from __future__ import annotations

import os

from jflow.base.handles import Closing
from jflow.errors import DataLossError, InvalidArgumentError, NotFoundError
from jflow.state.checkpoint_files.local import LocalStorage
from jflow.state.checkpoint_files.remote import SEPARATOR, RemoteStorage
from jflow.state.checkpoint_files.storage import CheckpointStorage, FileSource
from jflow.state.records.allowed_directories import CHECKPOINTS, AllowedDirectories

ANYWHERE = AllowedDirectories.anywhere(CHECKPOINTS)
"""The allowed directories of checkpoints in the user's own process: all of them."""


def checkpoint_roots(paths: list[str]) -> AllowedDirectories:
    """Returns the allowed directories of a task's checkpoints.

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
        """The whole prefix, with links resolved."""
        return self.storage.file(self.name)

    def file(self, suffix: str) -> str:
        """Returns the name of a file of the checkpoint."""
        return f"{self.name}.{suffix}"

    def open(self, name: str) -> FileSource:
        """Opens a file of the checkpoint by its name. Raises DataLossError if it is missing."""
        try:
            return self.storage.open(name)
        except NotFoundError as error:
            raise DataLossError(f"{error.message}; it belongs to {self.path!r}") from error

    def close(self) -> None:
        """Closes the directory."""
        self.storage.close()

    def _leave(self, failed: bool) -> None:
        self.close()


def local_path(path: str) -> str:
    """Converts a "file:///…" URL to a local path; returns any other path unchanged."""
    return path.removeprefix("file://")


def locate(
    prefix: str | os.PathLike[str], allowed: AllowedDirectories = ANYWHERE, *, makes: bool = False
) -> CheckpointPrefix:
    """Opens the directory of a checkpoint, which may not exist yet.

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
