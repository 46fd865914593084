"""A cluster of `jflow up`: how long it takes to be there, and what watching it costs its tasks."""

from __future__ import annotations

import itertools
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

import jflow as tf
from bench.cases.remote import echo_server
from bench.timing import alternate, tell
from jflow.cli.watcher import Watcher

N_STARTS, N_KILLS = 3, 5
SECONDS = int(os.environ.get("BENCH_WATCHED_SECONDS", "60"))
BARE = "import jflow, jax; jax.devices()"
READY = re.compile(r"(\S+) is ready at (grpc://\S+)\n")


class Up:
    """`jflow up` of one parameter server and two workers, in a process of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jflow", "up", "--ps", "1", "--workers", "2", "--restart"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.targets = dict(self.next_ready() for _ in range(3))

    def next_ready(self) -> tuple[str, str]:
        """The next task that is ready, and its target."""
        found = READY.fullmatch(self.process.stdout.readline())
        return found[1], found[2]


@contextmanager
def started() -> Iterator[Up]:
    up = Up()
    try:
        yield up
    finally:
        up.process.send_signal(signal.SIGTERM)
        up.process.communicate()


def starts() -> None:
    """From nothing to a cluster, beside a Python that only finds its devices."""
    taken: dict[str, list[float]] = {"bare": [], "up": []}
    for _ in range(N_STARTS):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", BARE], check=True)
        taken["bare"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        with started():
            taken["up"].append(time.perf_counter() - begun)
    tell(
        {
            "Python that imports jflow and finds its devices": statistics.median(taken["bare"]),
            "jflow up of 1 + 2, until all are ready": statistics.median(taken["up"]),
        }
    )


def kills(up: Up, watcher: Watcher) -> None:
    """A task that is killed, until it is ready again; its addresses stay."""
    taken = []
    for _ in range(N_KILLS):
        pid = pids(watcher)["/job:worker/task:1"]
        time.sleep(1.0)  # a task is started again at most once a second
        begun = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        up.next_ready()
        taken.append(time.perf_counter() - begun)
    tell({"killed task, until it is ready again": statistics.median(taken)})


def first_steps(up: Up, address: str) -> None:
    """A new session and its first step, beside a new channel of gRPC and an echo.

    This process and the server know the program, unless it is new to both of them.
    """
    target = up.targets["/job:worker/task:0"]
    numbers = itertools.count()

    def step(number: float = 3.0) -> None:
        with tf.Graph().as_default():
            x = tf.constant(1.0) * number
            with tf.Session(target) as session:
                session.run(x)

    def connection() -> None:
        with tf.Connection(target) as opened:
            opened.check()

    def echo() -> None:
        with grpc.insecure_channel(address) as channel:
            channel.unary_unary("/raw/echo")(b"x")

    calls = {
        "new session and first step": step,
        "new session and first step of a new program": lambda: step(next(numbers)),
        "new connection": connection,
        "new channel and echo": echo,
    }
    tell(alternate(calls, n=10))


def watching(watcher: Watcher) -> None:
    """The processor time of the busiest task that is asked for its status once a second."""
    kinds = ("devices", "sessions", "steps")
    before = {pid: cpu_s(pid) for pid in pids(watcher).values()}
    begun = time.monotonic()
    for number in range(SECONDS):
        watcher.inspect(kinds)
        time.sleep(max(begun + number + 1 - time.monotonic(), 0.0))
    elapsed = time.monotonic() - begun
    parts = [(cpu_s(pid) - used) / elapsed for pid, used in before.items()]
    tell({"processor time of a task watched at 1 Hz": max(parts)})


def pids(watcher: Watcher) -> dict[str, int]:
    return {str(one.report.task): one.status.pid for one in watcher.inspect(()) if one.status}


def cpu_s(pid: int) -> float:
    """The processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    starts()
    with started() as up, echo_server() as address:
        with Watcher([up.targets["/job:worker/task:0"]], 60.0) as watcher:
            kills(up, watcher)
            watching(watcher)
        first_steps(up, address)


if __name__ == "__main__":
    main()
