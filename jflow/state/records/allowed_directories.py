"""Access control for files: only files below the declared roots of a task may be used.

A task has two kinds of roots, which are independent: data roots, below which readers read, and
checkpoint roots, below which checkpoints are written, read and deleted.

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
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from typing import BinaryIO

from jflow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
)
from jflow.state.records.failures import error_class

# O_NONBLOCK, because opening a FIFO without a writer would block the thread.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC

_REMOTE = "://"


@dataclass(frozen=True)
class Purpose:
    """The purpose of roots, as named in messages.

    Attributes:
      roots: what the roots are called.
      use: what cannot be done with a file outside of them.
      declare: how the owner of a task declares one.
    """

    roots: str
    use: str
    declare: str


DATA = Purpose("data root", "read", "`jflow server --data-root DIR` or JFLOW_DATA_ROOTS")
CHECKPOINTS = Purpose(
    "checkpoint root",
    "used for a checkpoint",
    "`jflow server --checkpoint-root DIR` or JFLOW_CHECKPOINT_ROOTS",
)


class AllowedDirectories:
    """Opens files for reading, and directories, only below the given roots.

    A relative name is looked up below each root in order; an absolute one must be below a root.

    Args:
      paths: the roots; without any, no file may be used. A root of checkpoints may also be a URL,
        such as "gs://bucket/runs".
      purpose: what they are for.

    Raises:
      NotFoundError: if a local one is not a directory.
    """

    def __init__(self, paths: Sequence[str], purpose: Purpose = DATA) -> None:
        self._purpose = purpose
        is_url = [purpose is CHECKPOINTS and _REMOTE in path for path in paths]
        self._urls = tuple(path.rstrip("/") for path in compress(paths, is_url))
        local = [path for path, remote in zip(paths, is_url, strict=True) if not remote]
        self._roots: tuple[str, ...] | None = tuple(os.path.realpath(path) for path in local)
        for path, root in zip(local, self._roots, strict=True):
            if not os.path.isdir(root):
                raise NotFoundError(f"the {purpose.roots} {path!r} is not a directory")

    @classmethod
    def anywhere(cls, purpose: Purpose = DATA) -> AllowedDirectories:
        """Allows all files that this process may use; relative names are relative to its directory.

        For local sessions, in which the user's own process uses the user's files, and for
        checkpoints of a server that only this user reaches.
        """
        roots = cls((), purpose)
        roots._roots = None
        return roots

    @property
    def is_anywhere(self) -> bool:
        """Whether all files are allowed."""
        return self._roots is None

    def check_url(self, url: str) -> str:
        """Returns the URL of a remote file after checking that it is below a root.

        Raises:
          InvalidArgumentError: if it is not a valid name.
          PermissionDeniedError: if it is outside the roots.
        """
        text = _checked_name(url)
        if ".." in text.split("/"):
            raise self._refused(text, "contains '..'")
        if self._roots is not None and not any(text.startswith(f"{one}/") for one in self._urls):
            raise self._refused(text, f"is outside the {self._purpose.roots}s")
        return text

    def directory(self, name: str | bytes, *, makes: bool = False) -> tuple[int, str]:
        """Opens a directory; the caller must follow no links below it.

        Args:
          name: its path.
          makes: whether it is made, with the directories above it that are missing.

        Returns:
          A descriptor, which the caller closes, and the path of the directory.

        Raises:
          InvalidArgumentError: if it is not a valid file name.
          NotFoundError: if it does not exist, or is not a directory.
          PermissionDeniedError: if it is outside the roots, or the process may not read it, or make
            it.
          ResourceExhaustedError: if no more files can be opened, or the disk is full.
        """
        text = _checked_name(name)
        try:
            if self._roots is None:
                path = os.path.realpath(text)
                if makes:
                    with suppress(FileExistsError):
                        os.makedirs(path)
                return os.open(path, _DIRECTORY), path
            root, way = self._resolve(text)
            descriptor = _walk(root, way, _DIRECTORY, makes=makes)
            return descriptor, os.path.normpath(os.path.join(root, way))
        except OSError as error:
            raise _to_op_error(error, text, "make" if makes else "read") from error

    def open(self, name: str | bytes) -> BinaryIO:
        """Opens a regular file for reading.

        Raises:
          FailedPreconditionError: if it is not a regular file, but a directory, a device, ….
          InvalidArgumentError: if it is not a valid file name.
          NotFoundError: if it does not exist.
          PermissionDeniedError: if it is outside the roots, or the process may not read it.
          ResourceExhaustedError: if no more files can be opened.
        """
        text = _checked_name(name)
        try:
            if self._roots is None:
                descriptor = os.open(os.path.realpath(text), _FILE)
            else:
                descriptor = _walk(*self._resolve(text))
        except OSError as error:
            raise _to_op_error(error, text) from error
        return _open_regular(descriptor, text)

    def _resolve(self, text: str) -> tuple[str, str]:
        """Returns the root of a file and the path from the root to it.

        This is the first root below which the file exists; otherwise the first that allows it.
        """
        if ".." in text.split("/"):
            raise self._refused(text, "contains '..'")
        parts = []
        for root in self._roots or ():
            # `join` returns an absolute name unchanged.
            path = os.path.realpath(os.path.join(root, text))
            for owner in self._roots or ():
                if os.path.commonpath((owner, path)) == owner:
                    parts.append((owner, os.path.relpath(path, owner)))
                    break
        if not parts:
            raise self._refused(text, f"is outside the {self._purpose.roots}s")
        return next((way for way in parts if os.path.lexists(os.path.join(*way))), parts[0])

    def _refused(self, text: str, reason: str) -> PermissionDeniedError:
        purpose = self._purpose
        what = f"{_printable_name(text)} cannot be {purpose.use}"
        roots = ", ".join(map(_printable_name, (*(self._roots or ()), *self._urls)))
        if not roots:
            return PermissionDeniedError(
                f"{what}: this task has no {purpose.roots}s; declare one with {purpose.declare}"
            )
        return PermissionDeniedError(
            f"{what}: it {reason}; the {purpose.roots}s of this task are {roots} "
            f"(declare one with {purpose.declare})"
        )


def _checked_name(name: str | bytes) -> str:
    text = os.fsdecode(name)
    if not text or "\0" in text:
        raise InvalidArgumentError(f"{_printable_name(text)} is not a valid file name")
    return text


def _printable_name(text: str) -> str:
    """Formats a name as printable text, even if its bytes are not UTF-8."""
    return repr(os.fsencode(text).decode(errors="backslashreplace"))


def _walk(root: str, way: str, flags: int = _FILE, *, makes: bool = False) -> int:
    """Opens the file or directory at a path below a root, refusing links on the way.

    A directory that is made is then opened like any other, so a link in its place is refused.
    """
    *directories, last = way.split("/")
    # The root's own path was declared by the owner of the task and may contain links.
    here = os.open(root, _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        for directory in directories:
            _make(directory, here, makes)
            below = os.open(directory, _DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        _make(last, here, makes)
        return os.open(last, flags, dir_fd=here)
    finally:
        os.close(here)


def _make(name: str, parent: int, makes: bool) -> None:
    """Creates a directory in an open one, unless the name exists; does nothing if not `makes`."""
    if makes:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)


def _open_regular(descriptor: int, text: str) -> BinaryIO:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
    raise FailedPreconditionError(
        f"{_printable_name(text)} is {kind}; only regular files can be read"
    )


def _to_op_error(error: OSError, text: str, use: str = "read") -> OpError:
    hint = {
        errno.EACCES: f"; the process of the task may not {use} it",
        errno.EPERM: f"; the process of the task may not {use} it",
        errno.ELOOP: "; a link was created there while it was opened",
        errno.ENXIO: "; only regular files can be read",
    }.get(error.errno or 0, "")
    return error_class(error)(f"{_printable_name(text)} cannot be opened: {error.strerror}{hint}")
