"""Which files may be read: those below the directories that the owner of a task declared.

The name of a file comes from a graph, so from every client that may open a session. What is
promised for declared roots: the file that is opened was reached from the root's own directory
through directories alone. Symbolic links are resolved first, and one that leads out is refused; the
way that was found is then walked with O_NOFOLLOW, so a link that is put there in between is refused
too. Hard links and mounts below a root count as being in it, and so does a directory that is
moved away while it is walked.
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

# A fifo without a writer would block the thread that opens it, hence O_NONBLOCK.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC

_DECLARE = "declare one with `jflow server --data-root DIR` or JFLOW_DATA_ROOTS"

_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class AllowedDirectories:
    """Opens regular files below declared directories, for reading only.

    A relative name is looked for below each directory in turn; an absolute one has to lead below
    one of them.

    Args:
      paths: the directories; none means that no file may be read.

    Raises:
      NotFoundError: if one of them is no directory.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._roots: tuple[str, ...] | None = tuple(os.path.realpath(path) for path in paths)
        for path, root in zip(paths, self._roots, strict=True):
            if not os.path.isdir(root):
                raise NotFoundError(f"the data root {path!r} is not a directory")

    @classmethod
    def anywhere(cls) -> AllowedDirectories:
        """Every file that this process may read; relative names are below its directory.

        For local sessions, where the user's own process reads the user's own files.
        """
        roots = cls(())
        roots._roots = None
        return roots

    def path(self, name: str | bytes) -> str:
        """The absolute path, free of links, of the file that a name means.

        The file need not exist. Between this call and a use of the path links may change; `open`
        is not open to that.

        Raises:
          InvalidArgumentError: if it is no name of a file.
          PermissionDeniedError: if it leads out of the roots.
        """
        text = _checked(name)
        if self._roots is None:
            return os.path.realpath(text)
        return os.path.join(*self._resolve(text))

    def open(self, name: str | bytes) -> BinaryIO:
        """The regular file of that name, open for reading.

        Raises:
          FailedPreconditionError: if it is a directory, a device or something else of the kind.
          InvalidArgumentError: if it is no name of a file.
          NotFoundError: if it does not exist.
          PermissionDeniedError: if it leads out of the roots, or the process may not read it.
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
        """The root, and the way from it to the file.

        Only the first root that has the file counts, the first one allowed if none has.
        """
        if ".." in text.split("/"):
            raise self._refused(text, "goes up by '..'")
        found = []
        for root in self._roots or ():
            # An absolute name is itself, whichever root it is joined to.
            path = os.path.realpath(os.path.join(root, text))
            for owner in self._roots or ():
                if os.path.commonpath((owner, path)) == owner:
                    found.append((owner, os.path.relpath(path, owner)))
                    break
        if not found:
            raise self._refused(text, "is outside")
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
        raise InvalidArgumentError(f"{_shown(text)} is no name of a file")
    return text


def _shown(text: str) -> str:
    """Text that can be sent, whatever bytes the name is of."""
    return repr(os.fsencode(text).decode(errors="backslashreplace"))


def _walk(root: str, way: str) -> int:
    """Opens the file at the end of a way below the root that has no link in it."""
    *directories, last = way.split("/")
    # The root's own path was made by the owner of the task and may have links in it by now.
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
    raise FailedPreconditionError(f"{_shown(text)} is {kind}; only regular files are read")


def _as_ours(error: OSError, text: str) -> Exception:
    message = f"{_shown(text)} cannot be opened: {error.strerror}"
    if error.errno in _MISSING:
        return NotFoundError(message)
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionDeniedError(f"{message}; the process of the task may not read it")
    if error.errno == errno.ELOOP:
        return PermissionDeniedError(f"{message}; a link was put there while it was opened")
    if error.errno == errno.ENXIO:
        return FailedPreconditionError(f"{message}; only regular files are read")
    return ResourceExhaustedError(message) if error.errno in _FULL else UnknownError(message)
