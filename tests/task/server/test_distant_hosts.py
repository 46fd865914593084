"""A training across two hosts with 40 ms between them, on links that lose, reorder and end."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from jflow.testing import ProgramProcess
from tests.network_hosts import Link, NetworkHosts
from tests.programs.packet_link import Conditions, Direction

CLIENT = Path(__file__).parent.parent.parent / "programs" / "distant_training.py"
NEAR, FAR = range(2)
JOBS = {"worker": NEAR, "ps": FAR}
ROUND_TRIP_S = 0.04
LOSSY = Conditions(delay_s=ROUND_TRIP_S / 2, loss=0.01)
REORDERING = Conditions(delay_s=ROUND_TRIP_S / 2, reorder=0.05)
LIVENESS_S = 15.0
LOST = {"stream_lost", "task_silent", "call_failed", "session_expired"}
"""What a server logs of others that do not answer."""


@dataclass(frozen=True)
class Training:
    """A training between two hosts.

    Attributes:
      link: what is between them.
      client: trains, on the near host.
      logs: what the servers log, by job.
    """

    link: Link
    client: ProgramProcess
    logs: dict[str, Path]

    def run(self, n: int) -> str:
        """Runs steps; returns what the client says."""
        self.client.write_line(str(n))
        return self.client.read_line(60.0)

    def events(self, job: str) -> set[str]:
        """What a server has logged so far."""
        lines = self.logs[job].read_text().splitlines()
        return {json.loads(line).get("event", "") for line in lines}


@contextmanager
def training(folder: Path, conditions: Conditions) -> Iterator[Training]:
    with ExitStack() as stack:
        hosts = stack.enter_context(NetworkHosts(2))
        link = hosts.link(NEAR, FAR, conditions)
        cluster = {job: [f"{hosts.address(host)}:2222"] for job, host in JOBS.items()}
        shared = {
            "JFLOW_TOKEN": "of these two hosts, and long enough",
            "JFLOW_INSECURE": "1",
            # Data streams of one kernel and file system would pass beside the network.
            "JFLOW_TRANSPORT": "tcp",
            "JFLOW_LOG": "info",
            "JFLOW_LOG_FORMAT": "json",
        }
        logs = {job: folder / job for job in JOBS}
        servers: list[ProgramProcess] = []
        for job, host in JOBS.items():
            told = {"cluster": cluster, "task": {"type": job, "index": 0}}
            server = shlex.join([sys.executable, "-m", "jflow", "server"])
            command = ["sh", "-c", f"exec {server} 2>{shlex.quote(str(logs[job]))}"]
            environment = {**shared, "TF_CONFIG": json.dumps(told)}
            process = ProgramProcess(hosts.command(host, command), environment)
            servers.append(stack.enter_context(process))
        for process in servers:
            assert "is ready" in process.read_line()
        environment = {**shared, "TF_CONFIG": json.dumps({"cluster": cluster})}
        command = hosts.command(NEAR, [sys.executable, str(CLIENT)])
        client = stack.enter_context(ProgramProcess(command, environment))
        assert client.read_line() == "initialized"
        yield Training(link, client, logs)


def after(n: int) -> str:
    """What the client says after so many steps, of which each was applied once."""
    value = 0
    for _ in range(n):
        value = (5 * value + 1) % 2**32
    return f"{n} {value - 2**32 if value >= 2**31 else value}"


def test_the_nth_packet_of_a_direction_has_the_same_fate_each_time() -> None:
    def arrivals(number: int, pause_s: float) -> list[bytes]:
        direction = Direction(Conditions(delay_s=0.1, loss=0.1, reorder=0.1, late_s=0.9), number)
        for i in range(100):
            direction.take(bytes([i]), now=i * pause_s)
        return list(direction.due(1000.0))

    quick, slow = arrivals(0, 1e-5), arrivals(0, 1.0)
    assert sorted(quick) == slow, "the same are lost; a second apart, none overtakes another"
    assert 80 < len(slow) < 98
    assert quick != slow, "some were overtaken"
    assert arrivals(1, 1.0) != slow, "the other direction loses others"


def test_a_packet_takes_the_delay_and_its_turn_and_a_full_queue_loses_it() -> None:
    conditions = Conditions(delay_s=0.5, bytes_per_s=100.0, queue_s=2.5)
    direction = Direction(conditions, 0)
    for packet in (b"a", b"b", b"c", b"d"):
        direction.take(packet * 100, now=10.0)
    assert direction.next_due == 11.5
    assert [list(direction.due(now)) for now in (11.4, 11.5, 13.5)] == [
        [],
        [b"a" * 100],
        [b"b" * 100, b"c" * 100],
    ]
    assert (direction.counts.arrived, direction.counts.overflowed) == (4, 1)


def test_a_cut_loses_what_is_under_way_and_what_is_sent_until_it_heals() -> None:
    direction = Direction(Conditions(delay_s=1.0), 0)
    direction.take(b"under way", now=0.0)
    direction.cut()
    direction.take(b"sent", now=0.0)
    direction.heal()
    direction.take(b"later", now=0.0)
    assert list(direction.due(2.0)) == [b"later"]
    assert direction.counts.cut == 2


def test_hosts_are_as_far_apart_as_their_link_says() -> None:
    place = (NetworkHosts.address(FAR), 2222)
    listens = f"import socket; s = socket.create_server({place}); print(); s.accept()[0].recv(1)"
    connects = (
        "import socket, time; begun = time.monotonic();"
        f"socket.create_connection({place}); print(time.monotonic() - begun)"
    )
    with ExitStack() as stack:
        hosts = stack.enter_context(NetworkHosts(2))
        link = hosts.link(NEAR, FAR, LOSSY)
        started = []
        for host, code in ((FAR, listens), (NEAR, connects)):
            command = hosts.command(host, [sys.executable, "-c", code])
            started.append(stack.enter_context(ProgramProcess(command)))
            said = started[-1].read_line()
        assert float(said) >= ROUND_TRIP_S
        assert all(counts.arrived > 1 for counts in link.counts()), "a handshake goes both ways"


@pytest.mark.long
def test_a_training_over_a_link_that_loses_packets_goes_on_as_if_it_lost_none(
    tmp_path: Path,
) -> None:
    with training(tmp_path, LOSSY) as distant:
        assert distant.run(20) == after(20)
        assert sum(counts.lost for counts in distant.link.counts()) > 0
        assert not distant.events("ps") & LOST
        assert not distant.events("worker") & LOST


@pytest.mark.long
@pytest.mark.parametrize("conditions", [LOSSY, REORDERING], ids=["loss", "reordering"])
def test_no_task_counts_as_lost_in_twice_the_time_after_which_a_silent_one_would(
    tmp_path: Path, conditions: Conditions
) -> None:
    with training(tmp_path, conditions) as distant:
        until, n = time.monotonic() + 2 * LIVENESS_S, 0
        while time.monotonic() < until:
            n += 10
            assert distant.run(10) == after(n)
        counts = distant.link.counts()
        assert sum(one.lost + one.late for one in counts) > 5
        assert not distant.events("ps") & LOST
        assert not distant.events("worker") & LOST


@pytest.mark.long
def test_a_link_that_ends_is_noticed_in_the_documented_time_and_used_again(tmp_path: Path) -> None:
    with training(tmp_path, LOSSY) as distant:
        assert distant.run(10) == after(10)
        distant.link.cut()
        error, seconds = distant.run(1).split()
        assert error == "UnavailableError"
        assert float(seconds) < LIVENESS_S + 1.0
        assert distant.events("worker") & LOST, "else no event would say that none was lost"
        distant.link.heal()
        assert distant.run(10) == after(20), "nothing was lost, and nothing applied twice"
