"""What the live page costs a task with 1,000 variables, and a step of 5 ms beside it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import jflow as tf
from bench.cases.reports import one_device, weights
from bench.cases.starting import cpu_s, pids
from bench.timing import ROUNDS, seconds, tell
from jflow.cli.dashboard.command import served
from jflow.cli.watcher import Watcher

N_VARIABLES = 1_000
PERIOD_S = 0.5
SECONDS = 20
N = 60


def main() -> None:
    """Measures; `view TARGET` is a process that serves the page and reads it at 2 Hz."""
    if sys.argv[1:2] == ["view"]:
        view(sys.argv[2])
        return
    with tf.LocalCluster(ps=1, workers=1) as cluster, tf.connect(cluster.target("ps", 0)):
        with tf.device("/job:ps"):
            variable = weights()
            for number in range(N_VARIABLES - 1):
                tf.Variable(np.float32(number), name=f"variable{number}")
        step = one_device(variable, 26)
        x = np.ones((256, 256), np.float32)
        taken: dict[str, list[float]] = {"alone": [], "beside the page": []}
        seconds(lambda: float(step(x)), N)
        for _ in range(ROUNDS):
            taken["alone"].append(seconds(lambda: float(step(x)), N))
            with viewed(cluster.target("ps", 0)):
                taken["beside the page"].append(seconds(lambda: float(step(x)), N))
        tell({f"5 ms step, {how}": statistics.median(times) for how, times in taken.items()})
        with Watcher([cluster.target("ps", 0)], 30.0) as watcher, viewed(cluster.target("ps", 0)):
            before = {pid: cpu_s(pid) for pid in pids(watcher).values()}
            begun = time.monotonic()
            time.sleep(SECONDS)
            elapsed = time.monotonic() - begun
            parts = [(cpu_s(pid) - used) / elapsed for pid, used in before.items()]
    tell({"processor time of a task under the page at 2 Hz": max(parts)})


@contextmanager
def viewed(target: str) -> Iterator[None]:
    """A block beside which another process serves the page and reads it."""
    command = [sys.executable, "-m", "bench.cases.live_page", "view", target]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.stdin.close()


def view(target: str) -> None:
    """Serves the page and reads it at 2 Hz, until standard input ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with served([target], 3.0, interval_s=PERIOD_S) as url:
        address, _, token = url.partition("#token=")
        request = urllib.request.Request(
            f"{address}api/state", headers={"Authorization": f"Bearer {token}"}
        )
        for number in range(10**9):
            with urllib.request.urlopen(request) as reply:
                reply.read()
            if number == 2:
                print("viewed", flush=True)
            if ended.wait(PERIOD_S):
                return


if __name__ == "__main__":
    main()
