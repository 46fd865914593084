"""Which other users may replace a file: by the directories that lead to it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

_MAX_LINKS = 40


def loose_directory(path: Path) -> Path | None:
    """The first directory in which other users may replace a file, or what leads to it.

    A directory is safe if it belongs to this user or the superuser and no others may write to it,
    or only with the sticky bit, by which they can replace nothing but their own files. All are
    looked at that the name and the links on its way pass through, except those above the home
    directory of this user, whose owners can replace all of it (OpenSSH does the same).

    Args:
      path: the file, which may be missing.

    Returns:
      The directory; None if all are safe.

    Raises:
      OSError: if a directory cannot be looked at, or there are too many links.
    """
    trusted = _trusted()
    for directory in _directories(path):
        if directory not in trusted and _is_loose(directory.stat()):
            return directory
    return None


def _directories(path: Path) -> Iterator[Path]:
    """The directories in which the parts of a name are looked up, through links."""
    found, parts, n_links = Path("/"), list(reversed(path.absolute().parts[1:])), 0
    while parts:
        part = parts.pop()
        if part == "..":
            found = found.parent
            continue
        yield found
        if not (found / part).is_symlink():
            found = found / part
            continue
        n_links += 1
        if n_links > _MAX_LINKS:
            raise OSError(f"too many links lead to {path}")
        target = (found / part).readlink()
        parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        found = Path("/") if target.is_absolute() else found


def _trusted() -> frozenset[Path]:
    try:
        own = Path.home()
    except RuntimeError:
        return frozenset()
    return frozenset({*own.parents, *own.resolve().parents})


def _is_loose(directory: os.stat_result) -> bool:
    """Whether users other than this one and the superuser may replace files in a directory."""
    if directory.st_uid not in (os.geteuid(), 0):
        return True
    return bool(directory.st_mode & 0o022) and not directory.st_mode & stat.S_ISVTX
