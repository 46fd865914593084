"""Network namespaces as separate hosts on one network, of which a test can cut any one off.

Each host has a loopback interface, an address and a cable of its own to a bridge. Two hosts can
have a link instead, as between data centres, which delays, loses and reorders packets. That needs
no privileges where the system lets users make namespaces, and open `/dev/net/tun` for links;
otherwise tests are skipped, and say why.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from jflow.base.handles import Closing
from jflow.testing import wait_until
from tests.programs import packet_link
from tests.programs.packet_link import Conditions, Counts

MTU = 1500
_N_QUEUED = 10_000
"""How many packets a TUN device keeps until they are read; the link bounds its queue by itself."""


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
        self._links: list[Link] = []
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
        """Unplugs a host: what it sends is lost, and what is sent to it, without any notice.

        Its links go on; see `Link.cut`.
        """
        self._ip(self._bridge, f"link set cable{host} down")

    def heal(self, host: int) -> None:
        """Plugs a host in again."""
        self._ip(self._bridge, f"link set cable{host} up")

    def link(self, one: int, other: int, conditions: Conditions) -> Link:
        """Links two hosts: what they send each other goes over the link from now on.

        Args:
          one, other: the hosts.
          conditions: what becomes of the packets.

        Returns:
          The link, which is gone with the hosts at the latest.

        Raises:
          pytest.skip.Exception: if the machine does not permit it.
        """
        name = f"link{len(self._links)}"
        devices: list[int] = []
        try:
            for host in (one, other):
                devices.append(self._device(host, name))
            for host, peer in ((one, other), (other, one)):
                process = self._hosts[host]
                size = f"mtu {MTU} txqueuelen {_N_QUEUED}"
                # An address of IPv6 would be announced, by packets that no program has sent.
                self._ip(process, f"link set {name} {size} addrgenmode none up")
                way = f"{self.address(peer)}/32 dev {name} src {self.address(host)}"
                self._ip(process, f"route add {way}")
            link = Link(devices, conditions)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", b"") or b""
            pytest.skip(f"no TUN devices on this machine for a link: {error} {said.decode()}")
        finally:
            for device in devices:
                os.close(device)
        self._links.append(link)
        return link

    def close(self) -> None:
        """Ends the links and namespaces. May be called again."""
        for link in self._links:
            link.close()
        for process in self._processes:
            process.communicate()

    def _device(self, host: int, name: str) -> int:
        """Makes a TUN device on a host; returns its file descriptor."""
        here, there = socket.socketpair()
        with here, there:
            words = [sys.executable, packet_link.__file__, "open", name, str(there.fileno())]
            subprocess.run(
                self.command(host, words),
                pass_fds=[there.fileno()],
                check=True,
                capture_output=True,
            )
            _, [device], _, _ = socket.recv_fds(here, 1, 1)
        return device

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


def has_links() -> bool:
    """Whether this machine permits hosts and links between them."""
    try:
        with NetworkHosts(2) as hosts, hosts.link(0, 1, Conditions()):
            return True
    except pytest.skip.Exception:
        return False


class Link(Closing):
    """A link between two hosts. It is gone with the block, and with this process.

    Args:
      devices: the file descriptors of the TUN devices of its ends.
      conditions: what becomes of the packets.
    """

    def __init__(self, devices: Sequence[int], conditions: Conditions) -> None:
        words = ["forward", *map(str, devices), json.dumps(asdict(conditions))]
        self._process = subprocess.Popen(
            [sys.executable, packet_link.__file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=devices,
            start_new_session=True,
            text=True,
        )
        self._answer()

    def cut(self) -> None:
        """Loses all packets from now on, in both directions and without any notice."""
        self._ask("cut")

    def heal(self) -> None:
        """Ends a cut."""
        self._ask("heal")

    def counts(self) -> list[Counts]:
        """What became of the packets of each direction."""
        return [Counts(**counts) for counts in json.loads(self._ask("counts"))]

    def close(self) -> None:
        """Ends the link. May be called again."""
        self._process.communicate()

    def _leave(self, failed: bool) -> None:
        self.close()

    def _ask(self, word: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the link has ended with exit code {self._process.wait()}")
        return answer


def _inside(process: int) -> list[str]:
    """The beginning of commands that run in the namespaces of a process."""
    return ["nsenter", "--target", str(process), "--user", "--net", "--preserve-credentials"]


def _namespace(process: int | str, kind: str) -> str:
    return str(Path(f"/proc/{process}/ns/{kind}").readlink())


def _program(process: int) -> str:
    return Path(f"/proc/{process}/comm").read_text().strip()
