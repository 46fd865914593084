"""Unix sockets for data streams: where they are, which users may connect, what is stale.

The directory is the user's alone (mode 0700), and so are the sockets (0600). Each server listens at
a path of its own, below a directory of this machine's boot: a home directory may be shared with
other machines, whose sockets are nothing to connect to, and nothing to remove.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from jflow.errors import PermissionDeniedError, UnavailableError
from jflow.wire.machine import boot_id
from jflow.wire.private_files import make_private_directory

_CREDENTIALS = struct.Struct("3i")
_MAX_PATH_BYTES = 107
_BACKLOG = 128
_MAX_STALE = 1000
"""How many sockets a server looks at when it starts."""


def socket_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of this user's sockets, which is made if it does not exist.

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
    """A socket that listens at a new path in a directory, and the path.

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
    """Removes the file of a socket, if it is there."""
    with suppress(OSError):
        os.unlink(path)


def remove_stale(directory: Path) -> None:
    """Removes the sockets of processes of this machine that were killed."""
    for path in list(directory.glob("*-*.sock"))[:_MAX_STALE]:
        if not _is_running(path.name.partition("-")[0]) and _is_refused(path):
            remove(str(path))


def _is_running(pid: str) -> bool:
    """Whether there is a process with that id; it is not asked further, as it may just begin."""
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
    """Whether the process at the other end of a Unix socket is of the user of this one."""
    found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(found)[1] == os.geteuid())
