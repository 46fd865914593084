"""Thousands of dequeues that wait on one server: what they take, and what others notice of them.

With a target it is a client of `N_SESSIONS` sessions. It answers each line of its standard input
when it has done what that says: open, park, release.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

import jflow as tf
from bench import memory
from bench.timing import tell

N_CLIENTS, N_SESSIONS, N_THREADS = 4, 25, 50
N_PARKED = N_CLIENTS * N_SESSIONS * N_THREADS
N_ECHOES = 1000
REST_S = 3.0
"""Until what all clients have sent has come, and the server rests."""


class Client:
    """Sessions of which each has many dequeues in flight.

    Args:
      target: the server.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._queue = parking_queue()
        self._put, self._take = self._queue.enqueue(1.0), self._queue.dequeue()
        self._sessions: list[tf.Session] = []
        self._threads: list[threading.Thread] = []
        self._n_cancelled = 0
        self._lock = threading.Lock()

    def open(self) -> None:
        """Opens the sessions, and has the server know their steps."""
        for _ in range(N_SESSIONS):
            session = tf.Session(self._target)
            session.run(self._put)
            session.run(self._take)
            self._sessions.append(session)

    def park(self) -> None:
        """Begins dequeues that nothing serves."""
        threading.stack_size(256 << 10)
        for session in self._sessions:
            for _ in range(N_THREADS):
                self._threads.append(threading.Thread(target=self._wait, args=(session,)))
                self._threads[-1].start()

    def release(self) -> None:
        """Cancels all of them, and waits until they have ended."""
        for session in self._sessions:
            session.close()
        for thread in self._threads:
            thread.join()
        assert self._n_cancelled == len(self._threads)

    def _wait(self, session: tf.Session) -> None:
        try:
            session.run(self._take)
        except tf.errors.CancelledError:
            with self._lock:
                self._n_cancelled += 1


def parking_queue() -> tf.FIFOQueue:
    """The queue that all of them wait at."""
    return tf.FIFOQueue(1000, [tf.float32], [()], shared_name="parking")


def obey(target: str) -> None:
    """Does what standard input says."""
    client = Client(target)
    for line in sys.stdin:
        getattr(client, line.strip())()
        sys.stdout.write(line)
        sys.stdout.flush()


def percentiles(call: Callable[[], object]) -> tuple[float, float]:
    """Median and 99th percentile of seconds a call."""
    times = []
    for _ in range(N_ECHOES):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return float(np.percentile(times, 50)), float(np.percentile(times, 99))


def measure(cluster: tf.LocalCluster, have: Callable[[str], None]) -> None:
    """Parks and releases; `have` has all clients do something, and returns when they have."""
    pid = cluster.pid("worker", 0)
    queue, constant = parking_queue(), tf.constant(1.0) * 3
    put, size = queue.enqueue(1.0), queue.size()
    with tf.Session(cluster.target("worker", 0)) as session:
        session.run(constant)
        idle, _ = percentiles(lambda: session.run(constant))
        have("open")
        before = memory.resident(pid)
        have("park")
        time.sleep(REST_S)
        parked = memory.resident(pid)
        median, high = percentiles(lambda: session.run(constant))
        begun = time.perf_counter()
        have("release")
        session.run(put)
        assert session.run(size) == 1  # nothing waits any more, so it stays
        released = time.perf_counter() - begun
    tell(
        {
            "echo on an idle server, median": idle,
            "echo beside 5000 parked dequeues, median": median,
            "echo beside 5000 parked dequeues, 99 of 100": high,
            "memory of a parked dequeue": (parked - before) / N_PARKED,
            "release of 5000 parked dequeues": released,
        }
    )


def main() -> None:
    """One server and its clients, each a process."""
    with tf.LocalCluster(ps=0, workers=1) as cluster, ExitStack() as blocks:
        command = [sys.executable, "-m", "bench.cases.parked", cluster.target("worker", 0)]
        pipe = subprocess.PIPE
        clients = [
            blocks.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
            for _ in range(N_CLIENTS)
        ]

        def have(what: str) -> None:
            for client in clients:
                client.stdin.write(f"{what}\n")
                client.stdin.flush()
            for client in clients:
                assert client.stdout.readline().strip() == what

        measure(cluster, have)


if __name__ == "__main__":
    if sys.argv[1:]:
        obey(sys.argv[1])
    else:
        main()
