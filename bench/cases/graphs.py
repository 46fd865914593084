"""Building, pruning, placing and cutting graphs; starting up."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from inspect import signature
from typing import Any

import jflow as tf
from bench.timing import alternate, tell
from jflow.base.cluster import Device, Task
from jflow.compiler.partition import partition, prune
from jflow.compiler.placement import Inventory, place
from jflow.plan import Program


class _Devices(dict[Task, tuple[Device, ...]]):
    """The devices of tasks, which commits before the pure pipeline call for."""

    def __call__(self, task: Task) -> tuple[Device, ...]:
        return self[task]


def stages(n: int) -> None:
    """Microseconds an operation for a chain of `n`, over two tasks in turns of a hundred."""
    ps, worker = Task("ps", 0), Task("worker", 0)
    devices = _Devices({task: (Device(task, "CPU", 0),) for task in (ps, worker)})
    inventory = Inventory(worker, (ps, worker), devices)
    older: dict[str, Any] = {}
    if "lower" in signature(partition).parameters:  # it called back before it gave segments
        older = {"lower": lambda _: Program("", (), ()), "keep": lambda _: ""}
    with tf.Graph().as_default() as graph:
        begun = time.perf_counter()
        x = y = tf.placeholder(tf.float32, (8,))
        for i in range(n // 100):
            with tf.device("/job:ps" if i % 2 else "/job:worker"):
                for _ in range(100):
                    y = y + 1.0
        built = time.perf_counter()
        placement = place(prune(graph, [], [y], {x}), inventory)
        partition(list(placement), placement, [x], [y], **older)
        cut = time.perf_counter()
    tell({f"build {n} operations": (built - begun) / n, f"cut {n} operations": (cut - built) / n})


def imports() -> None:
    """Time to import, each in a fresh process."""
    modules = {"import jax": "import jax, jax.numpy", "import jflow": "import jflow"}
    calls = {
        name: partial(subprocess.run, [sys.executable, "-c", module], check=True)
        for name, module in modules.items()
    }
    tell(alternate(calls, n=1, rounds=5))


def sessions() -> None:
    """Starting and closing a local session."""
    tf.constant(1.0)
    tell(alternate({"start a local session": lambda: tf.Session().close()}, n=100))


if __name__ == "__main__":
    stages(1_000)
    stages(10_000)
    stages(100_000)
    sessions()
    imports()
