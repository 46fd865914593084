"""Files that are replaced as a whole: until the new content is complete, the former one stays."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

Path = str | os.PathLike[str]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """A block whose OSErrors name this file, as those of writing and closing name none."""
    try:
        yield
    except OSError as error:
        error.filename = os.fspath(path)
        raise


@contextmanager
def replacing(path: Path, *, mode: int = 0o666, follows: bool = False) -> Iterator[BinaryIO]:
    """A block in which the new content of a file is written.

    At its end the file is replaced, once the content is on disk. If anything fails, the file is as
    before, and nothing else is left. A file of another kind, such as a pipe, is written to.

    Args:
      path: the file; a link in its place is replaced.
      mode: the permissions of the new file, from which those of the umask are taken.
      follows: whether, if it is a link, the file is replaced that it leads to.

    Raises:
      OSError: if that fails; it names the file.
    """
    name = os.fspath(path)
    if _is_device(name):
        with naming_file(name), open(name, "wb") as file:
            yield file
        return
    target = os.path.realpath(name) if follows else name
    temporary = f"{target}.tmp{secrets.token_hex(4)}"
    try:
        with naming_file(name):
            with os.fdopen(os.open(temporary, _NEW, mode), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def replace_file(
    path: Path, data: bytes | str, *, mode: int = 0o666, follows: bool = False
) -> None:
    """Replaces a file by one with this content, text as UTF-8. See `replacing`."""
    with replacing(path, mode=mode, follows=follows) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def is_without_room(error: OSError) -> bool:
    """Whether something failed because the disk, or the quota of the user, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _is_device(path: str) -> bool:
    """Whether there is something that cannot be replaced by a file: a device, pipe or directory."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
