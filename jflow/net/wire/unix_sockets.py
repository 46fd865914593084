"""Unix sockets for data streams: their directories, permissions and removal when stale.

The directory is the user's alone (mode 0700), and so are the sockets (0600). Each server listens at
a path of its own, below a directory of this machine's boot: a home directory may be shared with
other machines, whose sockets are nothing to connect to, and nothing to remove. A server holds a
lock (`flock`) in its directory while it listens, so that a later one knows which boots are over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import socket
import stat
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from jflow.base.deadline.clock import boot_id
from jflow.errors import PermissionDeniedError, UnavailableError
from jflow.net.wire.private_files import make_private_directory

_CREDENTIALS = struct.Struct("3i")
_MAX_PATH_BYTES = 107
_BACKLOG = 128
_ATTEMPTS = 8
_REMOVED_S = 0.01
"""How long it may take to remove a directory, in seconds."""
_MAX_STALE = 1000
"""How many sockets, and directories of boots, a server looks at when it starts."""
_LOCK = "lock"
_BOOT_NAME = re.compile(r"[0-9a-f]{8}")

_own: set[str] = set()
"""The paths at which this process listens."""


def socket_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the directory of this user's sockets; creates it if it does not exist.

    Raises:
      PermissionDeniedError: if it cannot be made, or other users may use it.
    """
    base = environ.get("XDG_RUNTIME_DIR")
    top = Path(base) / "jflow" if base else Path.home() / ".jflow" / "run"
    directory = top / boot_id()[:8]
    try:
        for one in (top, directory):
            make_private_directory(one)
            status = one.lstat()
            is_private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
            if not is_private or status.st_uid != os.geteuid():
                raise PermissionDeniedError(
                    f"{one} must be a directory of this user that others cannot use; "
                    f"run `chmod 700 {one}`, or remove it"
                )
    except OSError as error:
        raise PermissionDeniedError(f"no directory for sockets at {directory}: {error}") from error
    return directory


def listen(directory: Path) -> tuple[socket.socket, str]:
    """Opens a socket that listens at a new path in a directory; returns the socket and the path.

    Raises:
      UnavailableError: if there can be none, for example because the path is too long.
    """
    path = str(directory / f"{os.getpid()}-{secrets.token_hex(4)}.sock")
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise UnavailableError(
            f"the path {path} is too long for a Unix socket; at most {_MAX_PATH_BYTES} bytes are "
            "allowed: set XDG_RUNTIME_DIR to a shorter one"
        )
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _own.add(path)
    try:
        listening.setblocking(False)
        os.fchmod(listening.fileno(), 0o600)  # the file gets this mode, at most
        listening.bind(path)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        remove(path)
        raise UnavailableError(f"no Unix socket at {path}: {error}") from error
    return listening, path


def remove(path: str) -> None:
    """Removes the file of a socket, if it exists."""
    _own.discard(path)
    with suppress(OSError):
        os.unlink(path)


def remove_own_sockets() -> None:
    """Removes the files of all sockets at which this process listens; for an abrupt exit."""
    for path in list(_own):
        if os.path.basename(path).startswith(f"{os.getpid()}-"):  # not a parent's, after a fork
            remove(path)


def hold(directory: Path) -> int:
    """Locks a directory of `socket_directory` as in use; returns the descriptor of the lock.

    The lock ends when that is closed, at the latest with the process.

    Raises:
      UnavailableError: if it cannot be held.
    """
    path = directory / _LOCK
    try:
        for _ in range(_ATTEMPTS):
            make_private_directory(directory)
            descriptor = _open_lock(path)
            try:
                _lock_shared(descriptor)
                if _is_at(descriptor, path):
                    return descriptor
            except BlockingIOError:  # a process of another machine removes it
                time.sleep(_REMOVED_S)
            os.close(descriptor)
    except OSError as error:
        raise UnavailableError(f"no lock at {path}: {error}") from error
    raise UnavailableError(f"no lock at {path}: other processes remove it")


def _lock_shared(descriptor: int) -> None:
    """Acquires a shared lock. Raises BlockingIOError if another process has an exclusive one."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # this file system has no locks, so nothing in it is removed by them
        pass


def remove_earlier(directory: Path) -> None:
    """Removes the directories of earlier boots that no process has locked."""
    with suppress(OSError):
        boot_directories = [
            one for one in directory.parent.iterdir() if _BOOT_NAME.fullmatch(one.name)
        ]
        for one in boot_directories[:_MAX_STALE]:
            if one != directory and stat.S_ISDIR(one.lstat().st_mode):
                with suppress(OSError):  # it is held, or has other files
                    _remove_unheld(one)


def _remove_unheld(directory: Path) -> None:
    """Removes a directory of sockets. Raises OSError if a process has locked it."""
    path = directory / _LOCK
    descriptor = _open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(descriptor, path):
            return
        for one in directory.glob("*-*.sock"):
            if stat.S_ISSOCK(one.lstat().st_mode):
                one.unlink()
        path.unlink()
        directory.rmdir()
    finally:
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    """Opens the file of a lock, and creates it if necessary. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def remove_stale(directory: Path) -> None:
    """Removes the sockets of killed processes of this machine."""
    for path in list(directory.glob("*-*.sock"))[:_MAX_STALE]:
        if not _is_running(path.name.partition("-")[0]) and _is_refused(path):
            remove(str(path))


def _is_running(pid: str) -> bool:
    """Whether there is a process with that id."""
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:
        return True
    return True


def _is_refused(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.setblocking(False)
        return one.connect_ex(str(path)) == errno.ECONNREFUSED


def is_of_this_user(connected: socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket belongs to this process's user."""
    found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(found)[1] == os.geteuid())
