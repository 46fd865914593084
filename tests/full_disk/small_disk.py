"""A small file system of its own, in which programs of a test run out of room.

It is mounted in a namespace of the programs, so that nothing else sees it and nothing is left of
it. A tmpfs needs no privileges where the system lets users make namespaces; an ext4, in a file,
needs those of the superuser and a loop device.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_PROGRAM = "tests.full_disk.program"
_MOUNTS = {
    "tmpfs": 'mount -t tmpfs -o size=4m,nr_inodes=200 jflow "$1"',
    "ext4": 'truncate -s 8M "$2" && mkfs.ext4 -q -m 0 -b 4096 -N 256 -O ^has_journal "$2" && '
    'mount -o loop "$2" "$1" && rmdir "$1/lost+found"',
}
"""The commands that mount one: $1 is the directory, $2 a file for what is in it."""


def run_on_small_disk(kind: str, folder: Path, cases: Sequence[str]) -> Mapping[str, str]:
    """Runs cases of `program.py` on a small file system.

    Args:
      kind: "tmpfs" or "ext4".
      folder: an empty directory on a large file system.
      cases: their names.

    Returns:
      For each of them what is wrong, or "".

    Raises:
      pytest.skip.Exception: if the machine does not permit it.
    """
    mount, image = folder / "mount", folder / "image"
    scratch = folder / "scratch"
    mount.mkdir()
    scratch.mkdir()
    namespace = ["unshare", "--mount"]
    if kind == "tmpfs" or os.geteuid():
        namespace += ["--user", "--map-root-user"]
    words = [*namespace, "sh", "-c", f'{_MOUNTS[kind]} && shift 2 && exec "$@"', "sh"]
    words += [str(mount), str(image)]
    try:
        subprocess.run([*words, "true"], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "")
        pytest.skip(f"no {kind} can be mounted for one program on this machine: {error} {said}")
    ended = subprocess.run(
        [*words, sys.executable, "-m", _PROGRAM, str(mount), str(scratch), *cases],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, f"{ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    results: Mapping[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return results


class SmallDisk:
    """The small file system, for the program that runs on it.

    Args:
      path: its directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler, self._fillers = path / "filler", path / "fillers"
        self._filler.touch()  # now, when there is room for it
        self._fillers.mkdir()

    @contextmanager
    def full(self, room: int = 0) -> Iterator[None]:
        """A block in which there is room for so many bytes."""
        size = 1 << 20
        with self._filler.open("ab", buffering=0) as file:
            while size:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
                except OSError:
                    size //= 2
            file.truncate(os.fstat(file.fileno()).st_size - room)
        try:
            yield
        finally:
            os.truncate(self._filler, 0)

    @contextmanager
    def without_inodes(self) -> Iterator[None]:
        """A block in which no file can be made."""
        try:
            with suppress(OSError):
                for number in itertools.count():
                    (self._fillers / str(number)).touch()
            yield
        finally:
            for one in self._fillers.iterdir():
                one.unlink()
