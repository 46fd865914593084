"""Servers that are not the ones that were meant: another cluster or task listens at the address."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import jflow as tf
from jflow.errors import UnavailableError
from jflow.testing import FaultProxy, free_ports, start_servers
from tests.task.server.test_deadlines import in_short

PS = "/job:ps/task:0"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def address_of(server: tf.train.Server) -> str:
    return server.target.removeprefix("grpc://")


def with_variable(server: tf.train.Server) -> Callable[[], float]:
    """Makes a variable on a server's own task; returns a function that reads it."""
    graph = tf.Graph()
    with graph.as_default():
        variable = tf.Variable(7.0)
        session = tf.Session(server.target, graph=graph)
    session.run(variable.initializer)
    return lambda: float(session.run(variable))


def stale(stack: ExitStack, jobs: dict[str, int]) -> tuple[tf.train.Server, tf.train.Server]:
    """A worker that knows a parameter server where a task of another cluster listens.

    Args:
      stack: ends the servers.
      jobs: the other cluster.

    Returns:
      The worker, and that task: the first one of the other cluster.
    """
    other = start_servers(stack.enter_context, jobs)[0]
    (worker,) = start_servers(stack.enter_context, {"worker": 1})
    worker.connect({"worker": [address_of(worker)], "ps": [address_of(other)]})
    return worker, other


OTHERS = {
    "another task": {"worker": 1},
    "the same task of another cluster": {"ps": 1, "worker": 1},
}


@pytest.mark.parametrize("jobs", OTHERS.values(), ids=OTHERS)
def test_a_reset_through_a_stale_address_wipes_nothing_of_another_cluster(
    stack: ExitStack, jobs: dict[str, int]
) -> None:
    worker, other = stale(stack, jobs)
    read = with_variable(other)
    with in_short(), pytest.raises(tf.errors.UnavailableError, match=r"expected .* got") as caught:
        tf.Session.reset(worker.target)
    assert caught.value.task == PS
    assert read() == 7.0


@pytest.mark.parametrize("jobs", OTHERS.values(), ids=OTHERS)
def test_a_step_through_a_stale_address_is_told_what_is_there(
    stack: ExitStack, jobs: dict[str, int]
) -> None:
    worker, other = stale(stack, jobs)
    with tf.Graph().as_default():
        with tf.device(PS):
            a = tf.constant(1.0) + 1
        with (
            tf.Session(worker.target) as session,
            in_short(),
            pytest.raises(tf.errors.UnavailableError, match=r"expected .* got") as caught,
        ):
            session.run(a)
    message = str(caught.value)
    assert f"the server at {address_of(other)} is not the one that was meant" in message
    assert "correct the address" in message
    assert caught.value.task == PS


def test_a_task_that_restarted_under_another_address_is_told_both_and_how_to_mend_it(
    stack: ExitStack,
) -> None:
    (old,) = free_ports(1)
    ps = stack.enter_context(tf.train.Server({"ps": ["127.0.0.1:0"]}, "ps", 0))
    worker = stack.enter_context(tf.train.Server({"worker": ["127.0.0.1:0"]}, "worker", 0))
    ps.connect({"ps": [address_of(ps)], "worker": [f"127.0.0.1:{old}"]})
    worker.connect({"ps": [address_of(ps)], "worker": [address_of(worker)]})
    with tf.device("/job:ps/task:0"):
        x = tf.Variable(1.0)
    new = address_of(worker)
    with tf.Session(worker.target) as session, pytest.raises(UnavailableError) as caught:
        session.run(x.initializer)
    told = str(caught.value)
    assert f"expected a cluster with /job:worker/task:0 at {new}" in told
    assert f"got one with /job:worker/task:0 at 127.0.0.1:{old}" in told
    assert f"start it at 127.0.0.1:{old} again, or all tasks with {new} in the cluster" in told
    # The task at its former address, with the former cluster: nothing has to be done but that.
    worker.stop()
    cluster = {"ps": [address_of(ps)], "worker": [f"127.0.0.1:{old}"]}
    back = stack.enter_context(tf.train.Server(cluster, "worker", 0))
    with tf.Session(back.target) as session:
        session.run(x.initializer)


def test_a_client_may_name_the_task_that_it_means(stack: ExitStack) -> None:
    ps, worker = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
    read = with_variable(worker)
    with pytest.raises(tf.errors.UnavailableError, match=f"expected {PS}, got /job:worker/task:0"):
        tf.Session.reset(f"{worker.target}?task={PS}")
    assert read() == 7.0
    tf.Session.reset(f"{ps.target}?task={PS}")


def test_a_client_may_name_the_cluster_that_it_means(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JFLOW_CLUSTER", "blue")
    (blue,) = start_servers(stack.enter_context, {"worker": 1})
    monkeypatch.delenv("JFLOW_CLUSTER")
    (unnamed,) = start_servers(stack.enter_context, {"worker": 1})
    read = with_variable(blue)
    with pytest.raises(tf.errors.UnavailableError, match=r"expected cluster 'green', got .*'blue'"):
        tf.Session.reset(f"{blue.target}?cluster=green")
    monkeypatch.setenv("JFLOW_CLUSTER", "green")
    with pytest.raises(tf.errors.UnavailableError, match=r"expected cluster 'green', got .*'blue'"):
        tf.Session.reset(blue.target)
    assert read() == 7.0
    tf.Session.reset(unnamed.target)
    tf.Session.reset(f"{blue.target}?cluster=blue")


def test_servers_with_one_name_of_the_cluster_may_know_different_addresses(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JFLOW_CLUSTER", "blue")
    worker, ps = stale(stack, {"ps": 1, "worker": 1})[0], PS
    with tf.Graph().as_default():
        with tf.device(ps):
            a = tf.constant(1.0) + 1
        with tf.Session(worker.target) as session:
            assert session.run(a) == 2.0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_on_the_loopback_interface_has_all_its_names(stack: ExitStack, host: str) -> None:
    (server,) = start_servers(stack.enter_context, {"worker": 1})
    port = address_of(server).rpartition(":")[2]
    tf.Session.reset(f"grpc://{host}:{port}")


@contextmanager
def squatter(server: tf.train.Server, host: str) -> Iterator[list[bytes]]:
    """Another user's process at the port of a server, on another address of this machine.

    It passes all on to the server. Gives what has passed.
    """
    seen: list[bytes] = []
    address = address_of(server)
    with ExitStack() as stack:
        try:
            listener = socket.create_server((host, port_of(address)), family=socket.AF_INET6)
        except OSError as error:
            pytest.skip(f"this machine has no {host}: {error}")
        sockets = [listener]
        threads = stack.enter_context(ThreadPoolExecutor(8))

        @stack.callback
        def stop() -> None:
            for one in sockets:
                with suppress(OSError):  # it is not connected any more
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

        def pump(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError):
                while passing := source.recv(1 << 16):
                    seen.append(passing)
                    target.sendall(passing)
                target.shutdown(socket.SHUT_WR)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    found = listener.accept()[0]
                    behind = socket.create_connection(("127.0.0.1", port_of(address)))
                    sockets.extend((found, behind))
                    threads.submit(pump, found, behind)
                    threads.submit(pump, behind, found)

        threads.submit(accept)
        yield seen


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.parametrize("name", ["localhost", "LocalHost"])
def test_nothing_comes_to_a_process_that_has_the_port_on_the_other_loopback_address(
    stack: ExitStack, name: str
) -> None:
    """Neither of clients nor of other servers, though the name localhost may stand for it."""
    (ps,) = start_servers(stack.enter_context, {"ps": 1})
    (worker,) = start_servers(stack.enter_context, {"worker": 1})
    at = f"{name}:{port_of(address_of(ps))}"
    worker.connect({"worker": [address_of(worker)], "ps": [at]})
    with squatter(ps, "::1") as seen, tf.Graph().as_default():
        with tf.device(PS):
            a = tf.constant(1.0) + 1
        with tf.Session(f"grpc://{at}?task={PS}") as session:
            assert session.run(a) == 2.0
        with tf.Session(worker.target) as session:
            assert session.run(a) == 2.0
        assert seen == []


def test_a_server_does_not_admit_what_was_called_at_the_other_loopback_address(
    stack: ExitStack,
) -> None:
    (server,) = start_servers(stack.enter_context, {"worker": 1})
    with (
        squatter(server, "::1") as seen,
        pytest.raises(tf.errors.UnavailableError, match=r"expected a server at \[::1\]"),
    ):
        tf.Session.reset(f"grpc://[::1]:{port_of(address_of(server))}")
    assert seen, "it came to the other process"


def test_a_server_refuses_what_was_called_at_another_address_unless_the_target_says_so(
    stack: ExitStack,
) -> None:
    (server,) = start_servers(stack.enter_context, {"worker": 1})
    proxy = stack.enter_context(FaultProxy(address_of(server)))
    with pytest.raises(tf.errors.UnavailableError, match="expected a server at") as caught:
        tf.Session.reset(f"grpc://{proxy.address}")
    assert f"?at={address_of(server)}" in str(caught.value)
    tf.Session.reset(proxy.target)


def test_a_name_of_a_cluster_that_is_none_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JFLOW_CLUSTER", "x" * 200)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"JFLOW_CLUSTER: .* at most 128"):
        tf.train.Server({"worker": ["127.0.0.1:0"]})


@pytest.fixture(scope="module")
def cluster() -> Iterator[tf.LocalCluster]:
    with tf.LocalCluster(ps=1, workers=0) as cluster:
        yield cluster


def test_the_targets_of_a_local_cluster_name_it(
    cluster: tf.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is meant for a cluster that has ended cannot reach the one that has its ports now."""
    monkeypatch.setattr(cluster, "_name", "local-another")
    with pytest.raises(tf.errors.UnavailableError, match="expected cluster 'local-another'"):
        tf.Session.reset(cluster.target("ps"))
    monkeypatch.undo()
    tf.Session.reset(cluster.target("ps"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_default_cluster_listens_on_the_loopback_interface_only(
    cluster: tf.LocalCluster,
) -> None:
    found = listening(cluster.pid("ps"))
    assert cluster.cluster_spec.task_address("ps", 0) in found
    assert {address.rpartition(":")[0] for address in found} == {"127.0.0.1"}


def listening(pid: int) -> set[str]:
    """The TCP addresses at which a process listens."""
    process = Path("/proc", str(pid))
    sockets = {os.readlink(each) for each in (process / "fd").iterdir() if each.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in (process / "net" / table).read_text().splitlines()[1:]:
            _, local, _, state, *others = line.split()
            if state == "0A" and f"socket:[{others[5]}]" in sockets:
                host, port = local.split(":")
                words = struct.unpack(f">{len(host) // 8}I", bytes.fromhex(host))
                packed = struct.pack(f"={len(words)}I", *words)
                address = ipaddress.ip_address(packed)
                # gRPC listens at IPv4 addresses with sockets of IPv6.
                shown = getattr(address, "ipv4_mapped", None) or address
                found.add(f"{shown}:{int(port, 16)}")
    return found
