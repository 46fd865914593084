"""What sessions and servers leave behind: open files, segments, threads, sockets, directories."""

import errno
import gc
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest

import jflow as tf
from jflow.launch import LocalCluster
from jflow.net.protocol.segments import MIN_SHARED_BYTES
from jflow.net.wire import connect, data_listener, remove_own_sockets, unix_sockets
from jflow.net.wire.unix_sockets import hold, remove_earlier, socket_directory
from jflow.testing import wait_until
from tests.net.protocol.hosts import PATIENCE_S, Host, listener_of, on_loop, served
from tests.net.wire import kinds

pytestmark = pytest.mark.usefixtures("own_sockets")


def test_a_listener_rests_while_the_process_has_too_many_open_files(server, monkeypatch):
    """Otherwise the loop would call it without end, and do nothing else."""
    monkeypatch.setattr(data_listener, "PAUSE_S", 0.1)
    listener = listener_of(server)
    (listening,) = listener._listening
    called = []

    class Exhausted:
        """A socket whose connections cannot be accepted at first."""

        def __getattr__(self, name):
            return getattr(listening, name)

        def accept(self):
            called.append(time.monotonic())
            if len(called) <= 3:
                raise OSError(errno.EMFILE, "too many open files")
            return listening.accept()

    async def exchange():
        listener._listening[:] = [Exhausted()]
        listener._accept_from(listener._listening[0])

    on_loop(exchange())
    client = connect(server.address, PATIENCE_S)
    assert client.transport == "unix"
    assert called[3] - called[0] >= 3 * 0.09  # at least, whatever the load
    client.close()


def _boot(name):
    """A directory of sockets of another boot, with one in it."""
    directory = socket_directory().parent / name
    directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(directory / "1-0123.sock"))
    return directory


def test_directories_of_earlier_boots_are_removed_if_no_process_holds_them():
    over, running = _boot("00000000"), _boot("11111111")
    foreign = _boot("22222222")
    (foreign / "of-another-program").write_text("")
    other = socket_directory().parent / "not-a-boot"
    other.mkdir()
    in_use = hold(running)
    remove_earlier(socket_directory())
    assert not over.exists()
    assert (running / "1-0123.sock").exists()
    assert (foreign / "of-another-program").exists()
    assert other.exists()
    os.close(in_use)
    remove_earlier(socket_directory())
    assert not running.exists()


def test_a_directory_that_is_removed_while_it_is_taken_is_made_again(monkeypatch):
    directory = socket_directory()
    lock, removed = unix_sockets._lock_shared, []

    def removing(descriptor):
        if not removed:
            removed.append((directory / "lock").unlink())
        lock(descriptor)

    monkeypatch.setattr(unix_sockets, "_lock_shared", removing)
    one = hold(directory)
    assert removed
    assert (directory / "lock").exists()
    os.close(one)


def test_a_process_that_ends_at_once_removes_its_own_sockets_and_no_others(server):
    other = socket_directory() / "1-0123.sock"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(other))
    assert len(list(socket_directory().glob(f"{os.getpid()}-*.sock"))) == 1
    remove_own_sockets()
    assert list(socket_directory().glob("*.sock")) == [other]


@pytest.mark.long
def test_a_task_that_is_told_to_end_removes_its_socket():
    command = [sys.executable, "-m", "jflow.launch.child", "worker", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as task:
        task.stdout.readline()
        assert len(list(socket_directory().glob(f"{task.pid}-*.sock"))) == 1
        task.terminate()
        task.wait(PATIENCE_S)
    assert list(socket_directory().glob(f"{task.pid}-*.sock")) == []


@pytest.mark.long
def test_sessions_of_tasks_that_are_killed_leave_no_files_behind():
    own = os.getpid()
    for _ in range(5):
        command = [sys.executable, "-m", "jflow.launch.child", "worker", "0"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as task:
            task.stdout.readline()
            task.kill()
    with served(Host()):
        names = [one.name for one in socket_directory().glob("*.sock")]
        assert [name.partition("-")[0] for name in names] == [str(own)]


@dataclass(frozen=True)
class Left:
    """What a process has."""

    n_files: int
    n_threads: int
    n_segments: int

    @classmethod
    def by(cls, pid):
        """Counts it. A segment counts once for each time that it is mapped."""
        process = psutil.Process(pid)
        maps = Path(f"/proc/{pid}/maps").read_text()
        return cls(process.num_fds(), process.num_threads(), maps.count("memfd:jflow segment"))


@pytest.mark.long
@kinds.on("unix", "tcp")
def test_what_a_thousand_sessions_leave_behind_does_not_grow_with_their_number(own_sockets, kind):
    most_segments = 0
    with LocalCluster(ps=0, workers=2) as cluster:
        pids = [os.getpid(), *(cluster.pid("worker", i) for i in range(2))]
        fed = tf.placeholder(tf.float32, [MIN_SHARED_BYTES // 2])
        with tf.device("/job:worker/task:1"):
            result = fed + 1
        value = np.zeros(MIN_SHARED_BYTES // 2, np.float32)

        def sessions(n):
            nonlocal most_segments
            for _ in range(n):
                with tf.Session(cluster.target()) as session:
                    for _ in range(3):
                        assert session.run(result, {fed: value})[-1] == 1
                    most_segments = max(most_segments, *(Left.by(pid).n_segments for pid in pids))

        def left():
            gc.collect()
            return [Left.by(pid) for pid in pids]

        def is_as_before():
            return all(
                after.n_files <= before.n_files + 8
                and after.n_threads <= before.n_threads + 8
                and after.n_segments <= 8
                for before, after in zip(first, left(), strict=True)
            )

        sessions(20)  # after which all that a process makes once is there
        first = left()
        sessions(980)
        wait_until(is_as_before)
        assert (most_segments > 0) == (kind == "unix")
        n_sockets = len(list(socket_directory().glob("*.sock")))
        assert n_sockets == (2 if kind == "unix" else 0)
    assert list(socket_directory().glob("*.sock")) == []
