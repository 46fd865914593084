"""Dask's actors and tasks, for the figures of `beside_peers`; in an environment of its own."""

from __future__ import annotations

import logging
import os
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

from bench.peers import (
    CALL,
    GET,
    MATRIX,
    N_BIG,
    N_KILLS,
    N_SHARED,
    N_TASKS,
    PUT,
    RESTART,
    STEP,
    TASKS,
    UPDATE,
    ParameterServer,
    State,
    gradient,
)
from bench.perceptron import BASE
from bench.timing import alternate, tell


class Worker:
    """Computes gradients of what a parameter server has."""

    def __init__(self, server: Any) -> None:
        self.gradient = gradient()
        self.server = server

    def step(self, x: Any, y: Any) -> float:
        loss, slopes = self.gradient(self.server.values().result(), x, y)
        self.server.update([np.asarray(slope) for slope in slopes]).result()
        return float(loss)


def add_one(x: int) -> int:
    return x + 1


def product(x: np.ndarray) -> np.ndarray:
    return x @ x


def state(client: Client, where: str) -> None:
    actor = client.submit(State, actor=True, workers=[where]).result()
    change, value = np.ones(N_SHARED, np.float32), np.ones(N_BIG, np.float32)
    short = {
        f"Dask {CALL}": lambda: actor.call().result(),
        f"Dask {UPDATE}": lambda: actor.update(change).result(),
    }
    tell(alternate(short, n=60))
    large = {
        f"Dask {PUT}": lambda: actor.put(value).result(),
        f"Dask {GET}": lambda: actor.get().result(),
    }
    tell(alternate(large, n=2))


def parameter_server(client: Client, workers: list[str]) -> None:
    server = client.submit(
        ParameterServer, BASE.weights(), actor=True, workers=workers[:1]
    ).result()
    worker = client.submit(Worker, server, actor=True, workers=workers[1:]).result()
    batch = BASE.data()
    tell(alternate({f"Dask {STEP}": lambda: worker.step(*batch).result()}, n=60))


def tasks(client: Client) -> float:
    client.gather(client.map(add_one, range(N_TASKS // 10), pure=False))
    begun = time.perf_counter()
    client.gather(client.map(add_one, range(N_TASKS), pure=False))
    return (time.perf_counter() - begun) / N_TASKS


def restart(client: Client) -> float:
    """A nanny starts the worker again, and the scheduler repeats what ran on it."""
    taken = []

    def call() -> None:
        client.submit(product, MATRIX, pure=False, retries=5).result()

    for _ in range(N_KILLS):
        call()
        (pid,) = client.run(os.getpid).values()
        time.sleep(1.5)
        begun = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        call()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


@contextmanager
def started(n_workers: int) -> Iterator[Client]:
    options = {"dashboard_address": None, "host": "127.0.0.1", "silence_logs": logging.CRITICAL}
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, **options) as cluster,
        Client(cluster) as client,
    ):
        yield client


def main() -> None:
    with started(2) as client:
        workers = [*client.scheduler_info()["workers"]]
        state(client, workers[0])
        parameter_server(client, workers)
        tell({f"Dask {TASKS}": tasks(client)})
    with started(1) as client:
        tell({f"Dask {RESTART}": restart(client)})


if __name__ == "__main__":
    main()
