"""Access control for files: only files below the data roots of a task may be read.

File names come from graphs, so from every client that may open a session. The guarantee for a
declared root: the opened file was reached from the root's own directory through directories only.
Symbolic links are resolved first, and a path that leads out of the root is refused. The resolved
path is then opened component by component with O_NOFOLLOW, so a link that is created in between is
refused, too. Hard links and mounts below a root count as inside, and so does a directory that is
moved away while the path is walked.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from typing import BinaryIO

from jflow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnknownError,
)

# O_NONBLOCK, because opening a FIFO without a writer would block the thread.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC

_DECLARE = "declare one with `jflow server --data-root DIR` or JFLOW_DATA_ROOTS"

_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class AllowedDirectories:
    """Opens regular files below data roots, for reading only.

    A relative name is looked up below each root in order; an absolute one must be below a root.

    Args:
      paths: the data roots; without any, no file may be read.

    Raises:
      NotFoundError: if one of them is not a directory.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._roots: tuple[str, ...] | None = tuple(os.path.realpath(path) for path in paths)
        for path, root in zip(paths, self._roots, strict=True):
            if not os.path.isdir(root):
                raise NotFoundError(f"the data root {path!r} is not a directory")

    @classmethod
    def anywhere(cls) -> AllowedDirectories:
        """Allows all files that this process may read; relative names are in its working directory.

        For local sessions, in which the user's own process reads the user's files.
        """
        roots = cls(())
        roots._roots = None
        return roots

    def path(self, name: str | bytes) -> str:
        """Resolves the name of a file, which need not exist, to an absolute path without links.

        Links may change before the path is used; `open` does not have this race.

        Raises:
          InvalidArgumentError: if it is not a valid file name.
          PermissionDeniedError: if it is outside the roots.
        """
        text = _checked(name)
        if self._roots is None:
            return os.path.realpath(text)
        return os.path.join(*self._resolve(text))

    def open(self, name: str | bytes) -> BinaryIO:
        """Opens a regular file for reading.

        Raises:
          FailedPreconditionError: if it is not a regular file, but a directory, a device, ….
          InvalidArgumentError: if it is not a valid file name.
          NotFoundError: if it does not exist.
          PermissionDeniedError: if it is outside the roots, or the process may not read it.
          ResourceExhaustedError: if no more files can be opened.
        """
        text = _checked(name)
        try:
            if self._roots is None:
                descriptor = os.open(os.path.realpath(text), _FILE)
            else:
                descriptor = _walk(*self._resolve(text))
        except OSError as error:
            raise _as_ours(error, text) from error
        return _regular(descriptor, text)

    def _resolve(self, text: str) -> tuple[str, str]:
        """The root, and the path from it to the file.

        This is the first root below which the file exists; otherwise the first that allows it.
        """
        if ".." in text.split("/"):
            raise self._refused(text, "contains '..'")
        found = []
        for root in self._roots or ():
            # `join` returns an absolute name unchanged.
            path = os.path.realpath(os.path.join(root, text))
            for owner in self._roots or ():
                if os.path.commonpath((owner, path)) == owner:
                    found.append((owner, os.path.relpath(path, owner)))
                    break
        if not found:
            raise self._refused(text, "is outside the data roots")
        return next((way for way in found if os.path.lexists(os.path.join(*way))), found[0])

    def _refused(self, text: str, reason: str) -> PermissionDeniedError:
        if not self._roots:
            return PermissionDeniedError(
                f"{_shown(text)} cannot be read: this task has no data roots; {_DECLARE}"
            )
        roots = ", ".join(map(_shown, self._roots))
        return PermissionDeniedError(
            f"{_shown(text)} cannot be read: it {reason}; the data roots of this task are {roots} "
            f"({_DECLARE})"
        )


def _checked(name: str | bytes) -> str:
    text = os.fsdecode(name)
    if not text or "\0" in text:
        raise InvalidArgumentError(f"{_shown(text)} is not a valid file name")
    return text


def _shown(text: str) -> str:
    """The name as printable text, also if its bytes are not UTF-8."""
    return repr(os.fsencode(text).decode(errors="backslashreplace"))


def _walk(root: str, way: str) -> int:
    """Opens the file at a path below the root, and refuses links in the path."""
    *directories, last = way.split("/")
    # The root's own path was declared by the owner of the task and may contain links.
    here = os.open(root, _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        for directory in directories:
            below = os.open(directory, _DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        return os.open(last, _FILE, dir_fd=here)
    finally:
        os.close(here)


def _regular(descriptor: int, text: str) -> BinaryIO:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
    raise FailedPreconditionError(f"{_shown(text)} is {kind}; only regular files can be read")


def _as_ours(error: OSError, text: str) -> Exception:
    message = f"{_shown(text)} cannot be opened: {error.strerror}"
    if error.errno in _MISSING:
        return NotFoundError(message)
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionDeniedError(f"{message}; the process of the task may not read it")
    if error.errno == errno.ELOOP:
        return PermissionDeniedError(f"{message}; a link was created there while it was opened")
    if error.errno == errno.ENXIO:
        return FailedPreconditionError(f"{message}; only regular files can be read")
    return ResourceExhaustedError(message) if error.errno in _FULL else UnknownError(message)
