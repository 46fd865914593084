"""Ray's actors, objects and tasks, for the figures of `beside_peers`; in an environment of its own.

Actors are what its documentation makes of shared state and of parameter servers.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
import ray

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


@ray.remote
class Worker:
    """Computes gradients."""

    def __init__(self) -> None:
        self.gradient = gradient()

    def step(self, weights: list[Any], x: Any, y: Any) -> tuple[Any, list[np.ndarray]]:
        loss, slopes = self.gradient(weights, x, y)
        return float(loss), [np.asarray(slope) for slope in slopes]


@ray.remote(max_restarts=-1, max_task_retries=-1)
class Restarted:
    """An actor that Ray starts again, and whose calls it repeats."""

    def pid(self) -> int:
        return os.getpid()

    def product(self, x: np.ndarray) -> np.ndarray:
        return x @ x


@ray.remote
def add_one(x: float) -> float:
    return x + 1


def state() -> None:
    actor = ray.remote(State).remote()
    change, value = np.ones(N_SHARED, np.float32), np.ones(N_BIG, np.float32)
    short = {
        f"Ray {CALL}": lambda: ray.get(actor.call.remote()),
        f"Ray {UPDATE}": lambda: ray.get(actor.update.remote(change)),
    }
    tell(alternate(short, n=60))
    large = {
        f"Ray {PUT}": lambda: ray.get(actor.put.remote(value)),
        f"Ray {GET}": lambda: ray.get(actor.get.remote()),
    }
    tell(alternate(large, n=2))
    ray.kill(actor)


def parameter_server() -> None:
    server, worker, batch = (
        ray.remote(ParameterServer).remote(BASE.weights()),
        Worker.remote(),
        BASE.data(),
    )
    x, y = (ray.put(value) for value in batch)

    def step() -> float:
        loss, slopes = worker.step.options(num_returns=2).remote(server.values.remote(), x, y)
        ray.get(server.update.remote(slopes))
        return ray.get(loss)

    tell(alternate({f"Ray {STEP}": step}, n=60))
    ray.kill(server)
    ray.kill(worker)


def tasks() -> float:
    ray.get([add_one.remote(i) for i in range(N_TASKS // 10)])
    begun = time.perf_counter()
    ray.get([add_one.remote(i) for i in range(N_TASKS)])
    return (time.perf_counter() - begun) / N_TASKS


def restart() -> float:
    actor, taken = Restarted.remote(), []
    for _ in range(N_KILLS):
        ray.get(actor.product.remote(MATRIX))
        pid = ray.get(actor.pid.remote())
        time.sleep(1.5)
        begun = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        ray.get(actor.product.remote(MATRIX))
        taken.append(time.perf_counter() - begun)
    ray.kill(actor)
    return statistics.median(taken)


def main() -> None:
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    state()
    parameter_server()
    tell({f"Ray {TASKS}": tasks()})
    tell({f"Ray {RESTART}": restart()})
    ray.shutdown()


def enter_namespace() -> None:
    """Starts this process again where only loopback is: Ray listens at every address."""
    inside = 'ip link set lo up && exec "$0" -m bench.cases.ray_peer'
    command = ["unshare", "--map-root-user", "--net", "sh", "-c", inside, sys.executable]
    os.execvpe("unshare", command, os.environ | {"BENCH_IN_NAMESPACE": "1"})


if __name__ == "__main__":
    if "BENCH_IN_NAMESPACE" not in os.environ:
        enter_namespace()
    main()
