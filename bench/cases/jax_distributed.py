"""The step of two workers as `jax.distributed` has it: one program of both, with an all-reduce.

`python -m bench.cases.jax_distributed INDEX PORT` is one of the two processes.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bench.peers import SYNCHRONOUS, free_ports, loss
from bench.perceptron import BASE, RATE
from bench.timing import seconds, tell

N, ROUNDS = 60, 7


def work(index: int, port: str) -> None:
    """Computes the steps of one of two processes; the first one measures."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=index)
    mesh = Mesh(np.array(jax.devices()), "batch")
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("batch",), ()))

    def train(weights: list[Any], x: Any, y: Any) -> tuple[Any, list[Any]]:
        value, slopes = jax.value_and_grad(loss)(weights, x, y)
        return value, [w - RATE * slope for w, slope in zip(weights, slopes, strict=True)]

    jitted = jax.jit(train, donate_argnums=0, out_shardings=(whole, whole))
    weights = [jax.device_put(w, whole) for w in BASE.weights()]
    halves = [value[index::2] for value in BASE.data()]

    def step() -> Any:
        nonlocal weights
        batch = (jax.make_array_from_process_local_data(split, half) for half in halves)
        value, weights = jitted(weights, *batch)
        return float(value)

    seconds(step, N)
    times = sorted(seconds(step, N) for _ in range(ROUNDS))
    if index == 0:
        tell({f"jax.distributed {SYNCHRONOUS}": times[ROUNDS // 2]})
    jax.distributed.shutdown()


def main() -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "bench.cases.jax_distributed"]
    processes = [subprocess.Popen([*command, str(index), port]) for index in range(2)]
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit(f"the processes ended with {codes}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case [index, port]:
            work(int(index), port)
        case _:
            main()
