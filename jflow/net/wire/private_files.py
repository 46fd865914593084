"""Reads files that no other user can have written, replaced or, if required, read.

Also makes the directories for such files.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jflow.errors import PermissionDeniedError

MAX_BYTES = 1 << 20
"""The most bytes of a file that is read: more than any token, certificate or key has."""

_MAX_LINKS = 40
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
"""How directories are opened; with O_PATH those as well that this user may not list."""


def make_private_directory(path: Path) -> None:
    """Makes a directory, and those above it that are missing, for this user only.

    `Path.mkdir` would make the ones above it as the umask says.
    """
    for one in (*reversed(path.parents), path):
        one.mkdir(mode=0o700, exist_ok=True)


def read_private(path: Path, forbidden: int = 0o077) -> bytes:
    """Reads a regular file of this user after checking that no other user controls it.

    The name is followed a part at a time, from one open directory to the next, and each part is
    checked before it is used. So what was checked is what is read, whatever others do meanwhile.

    Args:
      path: the file.
      forbidden: the permissions that others must not have: 0o077, or 0o022 if they may read it.

    Raises:
      PermissionDeniedError: if it is of another user, or others may replace it, a link or a
        directory that leads to it, or have forbidden permissions; the message says which.
      OSError: if it cannot be read, is not a regular file, or has more than `MAX_BYTES`.
    """
    with _naming_errors(path), _entry(path) as entry:
        if entry.loose is not None:
            raise PermissionDeniedError(f"other users may replace {path}: {entry.loose.text()}")
        with open(entry.name, "rb", opener=partial(_open, directory=entry.directory)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            check_private(path, status, "600", forbidden)
            content: bytes = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise OSError(errno.EFBIG, f"it has more than {MAX_BYTES} bytes")
            return content


def check_private(path: Path, status: os.stat_result, mode: str, forbidden: int = 0o077) -> None:
    """Checks owner and permissions of a file or directory.

    Args:
      path: its name, for messages.
      status: its status, as of `os.stat`.
      mode: the permissions that it should have, for messages.
      forbidden: the permissions that others must not have.

    Raises:
      PermissionDeniedError: if it is of another user, or others have forbidden permissions.
    """
    if status.st_uid != os.geteuid():
        raise PermissionDeniedError(
            f"{path} belongs to the user with the number {status.st_uid}, and this process is of "
            f"{os.geteuid()}: another user may know or replace what is in it; make one of its own"
        )
    if stat.S_IMODE(status.st_mode) & forbidden:
        raise PermissionDeniedError(
            f"other users may read or replace what is in {path}; run `chmod {mode} {path}`, and "
            "if they may have read a secret there, make a new one"
        )


def loose_place(path: Path) -> str | None:
    """Describes how other users may replace a file, which may be missing, or a part of its path.

    A directory is safe if it belongs to this user or the superuser and no others may write to it,
    or only with the sticky bit, by which they can replace nothing but their own files; a link, if
    it belongs to this user or the superuser. All are looked at that the name and the links on its
    way pass through, except those above the home directory of this user, whose owners can replace
    all of it (OpenSSH does the same).

    Returns:
      How, and what to do about it; None if they cannot.

    Raises:
      OSError: if a directory cannot be looked at, or there are too many links.
    """
    with _naming_errors(path), _entry(path) as entry:
        return None if entry.loose is None else entry.loose.text()


@dataclass(frozen=True)
class _Loose:
    """A link or directory that other users may replace, or in which they may replace files."""

    path: Path
    owner: int

    def text(self) -> str:
        """Describes the problem and what to do about it."""
        if self.owner not in _own_users():
            return (
                f"{self.path} belongs to the user with the number {self.owner}, and this process "
                f"is of {os.geteuid()}; keep the file elsewhere, or name it without that link"
            )
        return (
            f"they may write to {self.path}; run `chmod go-w {self.path}`, check its owner, and "
            "make the file again"
        )


@dataclass(frozen=True)
class _Entry:
    """A name in an open directory, or the unsafe place on the path to it."""

    directory: int
    name: str
    loose: _Loose | None = None


@contextmanager
def _naming_errors(path: Path) -> Iterator[None]:
    """Context manager whose errors name the whole path, not the part that was opened."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


@contextmanager
def _entry(path: Path) -> Iterator[_Entry]:
    """Opens the directory of a file, following links, up to the first unsafe place.

    An interrupt may come between any two lines: each descriptor leaves the list before it is
    closed, so that none is closed twice, when it may already be another thread's.
    """
    opened = [os.open("/", _LOOK)]
    try:
        entry, parts, n_links = Path("/"), list(reversed(path.absolute().parts[1:])), 0
        links, directories = _trusted_paths()
        while True:
            directory = opened[-1]
            status = os.fstat(directory)
            if entry not in directories and _is_loose(status):
                yield _Entry(directory, "", _Loose(entry, status.st_uid))
                return
            part = parts.pop() if parts else "."
            link = _link(part, directory)
            if link is None and not parts:
                yield _Entry(directory, part)
                return
            if link is None:
                opened.append(os.open(part, _LOOK, dir_fd=directory))
                entry = entry.parent if part == ".." else entry / part
                continue
            if entry / part not in links and link.st_uid not in _own_users():
                yield _Entry(directory, "", _Loose(entry / part, link.st_uid))
                return
            n_links += 1
            if n_links > _MAX_LINKS:
                raise OSError(errno.ELOOP, "too many links")
            target = Path(os.readlink(part, dir_fd=directory))
            parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            if target.is_absolute():
                opened.append(os.open("/", _LOOK))
                entry = Path("/")
    finally:
        while opened:
            os.close(opened.pop())


def _open(name: str, flags: int, directory: int) -> int:
    """Opens a file in a directory; refuses links, and does not wait for the other end of a pipe."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)


def _link(name: str, directory: int) -> os.stat_result | None:
    """Returns the status of a link in a directory; None if the name is missing or no link."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status if stat.S_ISLNK(status.st_mode) else None


def _trusted_paths() -> tuple[frozenset[Path], frozenset[Path]]:
    """Returns the links that any user may own, and the directories that any user may write."""
    try:
        own = Path.home()
    except RuntimeError:
        return frozenset(), frozenset()
    above = frozenset({*own.parents, *own.resolve().parents})
    return above | {own}, above


def _is_loose(directory: os.stat_result) -> bool:
    """Whether users other than this one and the superuser may replace files in a directory."""
    if directory.st_uid not in _own_users():
        return True
    return bool(directory.st_mode & 0o022) and not directory.st_mode & stat.S_ISVTX


def _own_users() -> tuple[int, int]:
    """Returns the ids of this user and the superuser."""
    return os.geteuid(), 0
