"""The clusters that a `jflow up` of this user keeps running on this machine.

A running `jflow up` is known by a file of this user, ~/.jflow/up/MACHINE/PID.json, which names the
servers, and the live page with its token. What is in it is not believed: both ends of a connection
prove the token, whatever address a file gave, and a server of another cluster or task, at a port
that was used again, refuses.

A home directory may be shared with other machines and containers, where a process id means another
process: each has a directory of its own, and leaves others alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jflow.base.cluster import Target
from jflow.base.files import replace_file
from jflow.net.wire.machine import machine_id
from jflow.net.wire.private_files import make_private_directory


@dataclass(frozen=True)
class RunningUp:
    """A cluster that a `jflow up` keeps running.

    Attributes:
      pid: the process of the command.
      targets: its servers, as `grpc://host:port?cluster=name&task=/job:ps/task:0`.
      logs: the directory with the logs of its tasks; "" if it has none.
      page: the URL of its live page, with the token; "" if it serves none.
    """

    pid: int
    targets: tuple[str, ...]
    logs: str = ""
    page: str = ""


@contextmanager
def announced(
    targets: Sequence[str],
    logs: Path | None = None,
    page: str = "",
    environ: Mapping[str, str] = os.environ,
) -> Iterator[None]:
    """Returns a context manager in which other commands of this user find this process's cluster.

    Args:
      targets: its servers.
      logs: the directory with the logs of its tasks, if there is one.
      page: the URL of its live page; "" if it serves none.
      environ: the environment variables.
    """
    folder = _folder(environ)
    make_private_directory(folder)
    path = folder / f"{os.getpid()}.json"
    about = {"started": _started(os.getpid()), "targets": [*targets]}
    about |= ({"logs": str(logs.resolve())} if logs else {}) | ({"page": page} if page else {})
    replace_file(path, json.dumps(about))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def running_ups(environ: Mapping[str, str] = os.environ) -> list[RunningUp]:
    """Returns the clusters of `jflow up` that run on this machine; removes files of others."""
    running = []
    for path in sorted(_folder(environ).glob("*.json")):
        with suppress(OSError, ValueError):
            content = json.loads(path.read_text())
            if (up := _read(path, content)) is not None:
                running.append(up)
                continue
            path.unlink(missing_ok=True)
    return running


def page_of(targets: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """Returns the URL of the page that a `jflow up` of this user serves of them; "" for none."""
    addresses = {Target.parse(target).address for target in targets}
    for up in running_ups(environ):
        if up.page and addresses & {Target.parse(target).address for target in up.targets}:
            return up.page
    return ""


def _read(path: Path, content: Any) -> RunningUp | None:
    """Returns the cluster of a file; None if its command has ended or the file is malformed."""
    if not isinstance(content, dict) or not path.stem.isdigit():
        return None
    targets, pid = content.get("targets"), int(path.stem)
    if not targets or not all(isinstance(target, str) for target in targets):
        return None
    # A process id is used again; the time at which its process started tells the two apart.
    if not (started := _started(pid)) or started != content.get("started"):
        return None
    logs, page = (
        text if isinstance(text := content.get(name, ""), str) else "" for name in ("logs", "page")
    )
    return RunningUp(pid, tuple(targets), logs, page)


def _folder(environ: Mapping[str, str]) -> Path:
    own = environ.get("HOME")
    machine = f"{machine_id()}:{_process_ids()}".replace(":", "-")
    return (Path(own) if own else Path.home()) / ".jflow" / "up" / machine


def _process_ids() -> str:
    """Identifies the namespace of this process's id, as `machine_id` does that of its network."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Returns when a process started, as the system counts; "" if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
