"""Network namespaces as separate hosts on one network, of which a test can cut any one off.

Each host has a loopback interface, an address and a cable of its own to a bridge. That needs no
privileges where the system lets users make namespaces; otherwise tests are skipped, and say why.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from jflow.base.handles import Closing
from jflow.testing import wait_until


class NetworkHosts(Closing):
    """Hosts that are separate machines to everything that looks at the network.

    They share the file system and the processes of this machine. They are gone with the block, and
    with this process: what keeps them ends with its standard input.

    Args:
      n: how many.

    Raises:
      pytest.skip.Exception: if the machine does not permit it.
    """

    def __init__(self, n: int) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._bridge = self._keep(["unshare", "--user", "--map-root-user", "--net"], "user")
            self._ip(self._bridge, "link add bridge type bridge")
            self._ip(self._bridge, "link set bridge up")
            self._hosts = [self._host(number) for number in range(n)]
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            said = getattr(error, "stderr", b"") or b""
            pytest.skip(f"no network namespaces on this machine: {error} {said.decode()}")

    @staticmethod
    def address(host: int) -> str:
        """The address of a host."""
        return f"10.77.0.{host + 1}"

    def command(self, host: int, words: Sequence[str]) -> list[str]:
        """The command that runs a program on a host."""
        return [*_inside(self._hosts[host]), *words]

    def cut_off(self, host: int) -> None:
        """Unplugs a host: what it sends is lost, and what is sent to it, without any notice."""
        self._ip(self._bridge, f"link set cable{host} down")

    def heal(self, host: int) -> None:
        """Plugs a host in again."""
        self._ip(self._bridge, f"link set cable{host} up")

    def close(self) -> None:
        """Ends the namespaces. May be called again."""
        for process in self._processes:
            process.communicate()

    def _leave(self, failed: bool) -> None:
        self.close()

    def _host(self, number: int) -> int:
        host = self._keep([*_inside(self._bridge), "unshare", "--net"], "net", self._bridge)
        self._ip(self._bridge, f"link add cable{number} type veth peer name eth0 netns {host}")
        self._ip(self._bridge, f"link set cable{number} master bridge up")
        self._ip(host, f"addr add {self.address(number)}/24 dev eth0")
        self._ip(host, "link set eth0 up")
        self._ip(host, "link set lo up")
        return host

    def _keep(self, command: Sequence[str], kind: str, other: int | None = None) -> int:
        """Starts a process that keeps a namespace; returns its id when it is in there."""
        process = subprocess.Popen(
            [*command, "cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._processes.append(process)
        former = _namespace("self" if other is None else other, kind)
        wait_until(
            lambda: (
                process.poll() is not None
                or (_namespace(process.pid, kind) != former and _program(process.pid) == "cat")
            ),
            "a namespace",
        )
        if process.poll() is not None:
            _, said = process.communicate()
            raise subprocess.CalledProcessError(process.returncode, command, stderr=said)
        return process.pid

    def _ip(self, process: int, words: str) -> None:
        """Runs the command `ip` where a process is."""
        subprocess.run([*_inside(process), "ip", *words.split()], check=True, capture_output=True)


def _inside(process: int) -> list[str]:
    """The beginning of commands that run in the namespaces of a process."""
    return ["nsenter", "--target", str(process), "--user", "--net", "--preserve-credentials"]


def _namespace(process: int | str, kind: str) -> str:
    return str(Path(f"/proc/{process}/ns/{kind}").readlink())


def _program(process: int) -> str:
    return Path(f"/proc/{process}/comm").read_text().strip()
