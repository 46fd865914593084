"""A link between two network namespaces that delays, loses and reorders IP packets.

    packet_link.py open NAME DESCRIPTOR
        opens the TUN device NAME of this namespace, and passes its file descriptor over a socket
    packet_link.py forward FIRST SECOND CONDITIONS
        forwards packets between two devices until its standard input ends

What `forward` is told over standard input is answered by a line: `cut` and `heal` by "done",
`counts` by what became of the packets of each direction, as JSON.

The kernel's own `netem` is not everywhere, and takes a seed only in newer kernels. TCP on both ends
is the kernel's.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from random import Random

MAX_PACKET = 1 << 16
MAX_READ = 64
"""How many packets of one direction are read before the others have their turn."""

_SET_DEVICE = 0x400454CA
_TUN, _NO_PACKET_INFORMATION = 0x0001, 0x1000


@dataclass(frozen=True)
class Conditions:
    """What a link does to packets, the same in both directions.

    Attributes:
      delay_s: one way, in seconds.
      loss: the probability with which a packet is lost.
      reorder: the probability with which a packet is overtaken by those behind it.
      late_s: by how many seconds such a packet comes later.
      bytes_per_s: the rate.
      queue_s: packets that would wait for longer than this many seconds until they are sent are
        lost.
      seed: says which packets these are. The n-th of a direction has the same fate each time.
    """

    delay_s: float = 0.0
    loss: float = 0.0
    reorder: float = 0.0
    late_s: float = 0.005
    bytes_per_s: float = 25e6
    queue_s: float = 0.1
    seed: int = 0


@dataclass
class Counts:
    """What became of the packets of a direction."""

    arrived: int = 0
    lost: int = 0
    late: int = 0
    overflowed: int = 0
    cut: int = 0


@dataclass
class Direction:
    """The packets that are under way in one direction. Without a clock and I/O.

    Args:
      conditions: of the link.
      number: which of its two directions this is, as each draws its own losses.
    """

    conditions: Conditions
    number: int
    is_cut: bool = False
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self._random = Random(self.conditions.seed * 2 + self.number)
        self._under_way: list[tuple[float, int, bytes]] = []
        self._free_at = 0.0

    def take(self, packet: bytes, now: float) -> None:
        """Takes a packet that was sent at a time, in seconds."""
        conditions, counts = self.conditions, self.counts
        counts.arrived += 1
        is_lost = self._random.random() < conditions.loss
        is_late = self._random.random() < conditions.reorder
        if self.is_cut:
            counts.cut += 1
        elif is_lost:
            counts.lost += 1
        elif self._free_at - now > conditions.queue_s:
            counts.overflowed += 1
        else:
            counts.late += is_late
            self._free_at = max(self._free_at, now) + len(packet) / conditions.bytes_per_s
            due = self._free_at + conditions.delay_s + conditions.late_s * is_late
            heapq.heappush(self._under_way, (due, counts.arrived, packet))

    def due(self, now: float) -> Iterator[bytes]:
        """Yields the packets that arrive until a time, in their order."""
        while self._under_way and self._under_way[0][0] <= now:
            yield heapq.heappop(self._under_way)[2]

    @property
    def next_due(self) -> float:
        """When the next packet arrives; infinite if none is under way."""
        return self._under_way[0][0] if self._under_way else float("inf")

    def cut(self) -> None:
        """Loses what is under way, and what is sent until `heal`."""
        self.is_cut = True
        self.counts.cut += len(self._under_way)
        self._under_way.clear()

    def heal(self) -> None:
        """Ends a cut."""
        self.is_cut = False


class Link:
    """Forwards packets between two TUN devices.

    Args:
      devices: their file descriptors.
      conditions: what becomes of the packets.
    """

    def __init__(self, devices: tuple[int, int], conditions: Conditions) -> None:
        first, second = devices
        self._directions = [Direction(conditions, number) for number in range(2)]
        self._ways = list(zip(self._directions, (first, second), (second, first), strict=True))
        for device in devices:
            os.set_blocking(device, False)

    def run(self) -> None:
        """Forwards, and does what standard input says, until that ends."""
        sources = [0, *(source for _, source, _ in self._ways)]
        while True:
            due = min(direction.next_due for direction in self._directions)
            timeout = None if due == float("inf") else max(due - time.monotonic(), 0.0)
            ready, _, _ = select.select(sources, [], [], timeout)
            for direction, source, target in self._ways:
                if source in ready:
                    _read(direction, source)
                for packet in direction.due(time.monotonic()):
                    with suppress(OSError):  # the other end takes nothing now
                        os.write(target, packet)
            if 0 in ready:
                told = os.read(0, 1024).decode()
                if not told:
                    return
                for word in told.split():
                    print(self._do(word), flush=True)

    def _do(self, word: str) -> str:
        if word == "counts":
            return json.dumps([asdict(direction.counts) for direction in self._directions])
        for direction in self._directions:
            {"cut": direction.cut, "heal": direction.heal}[word]()
        return "done"


def _read(direction: Direction, source: int) -> None:
    for _ in range(MAX_READ):
        try:
            packet = os.read(source, MAX_PACKET)
        except OSError:  # nothing is there
            return
        direction.take(packet, time.monotonic())


def open_device(name: str) -> int:
    """Returns the file descriptor of a new TUN device of this network namespace.

    Raises:
      OSError: if the system does not permit it.
    """
    device = os.open("/dev/net/tun", os.O_RDWR)
    request = struct.pack("16sH22x", name.encode(), _TUN | _NO_PACKET_INFORMATION)
    fcntl.ioctl(device, _SET_DEVICE, request)
    return device


def main(words: list[str]) -> None:
    match words:
        case ["open", name, descriptor]:
            with socket.socket(fileno=int(descriptor)) as told:
                try:
                    socket.send_fds(told, [b"x"], [open_device(name)])
                except OSError as error:
                    sys.exit(f"cannot open a TUN device: {error}")
        case ["forward", first, second, conditions]:
            link = Link((int(first), int(second)), Conditions(**json.loads(conditions)))
            print("ready", flush=True)
            link.run()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
