"""What runs plans imports nothing of what builds them: asserted in fresh interpreters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from tests.ports import free_ports

BUILDING = {
    *("graph", "placement", "partition", "lowering", "pipeline"),
    *("ops", "eager", "functions", "session", "data", "training", "inspect", "demo"),
    *("api.root", "api.train", "api.lifted", "numpy", "nn", "lax", "random"),
}
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def of_the_building_wing(modules: list[str]) -> list[str]:
    """Those that building needs and running must not."""
    return [
        module
        for module in modules
        if module.startswith("jflow.")
        and any(f"{module}.".startswith(f"jflow.{room}.") for room in BUILDING)
    ]


class Task:
    """`python -m jflow server` in a process of its own."""

    def __init__(self, cluster: dict[str, list[str]], job: str) -> None:
        program = Path(__file__).parent.parent.parent / "programs" / "reporting.py"
        arguments = ["jflow", "server", "--cluster", json.dumps(cluster), "--job", job]
        self.process = subprocess.Popen(
            [sys.executable, program, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )

    def read(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def modules(self) -> list[str]:
        """What the process has imported by now."""
        self.process.send_signal(signal.SIGUSR1)
        found: list[str] = json.loads(self.read())
        return found


@contextmanager
def tasks() -> Iterator[tuple[str, dict[str, Task]]]:
    """A parameter server and a worker, and the target of the worker."""
    ports = free_ports(2)
    cluster = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]}
    with ExitStack() as stack:
        found = {job: Task(cluster, job) for job in cluster}
        for task in found.values():
            stack.callback(task.process.wait, 60)
            stack.callback(task.process.kill)
            stack.enter_context(task.process.stdout)
        for task in found.values():
            assert task.read().endswith("is ready\n")
        yield f"grpc://{cluster['worker'][0]}", found


def run_one_of_each(target: str) -> None:
    """Runs plans with variables, a queue, programs and transfers in both directions."""
    with tf.device("/job:ps"):
        v = tf.Variable(np.ones(3, np.float32), name="v")
        queue = tf.FIFOQueue(4, [tf.float32, tf.string], [(3,), ()])
    with tf.device("/job:worker"):
        doubled = tf.numpy.exp(v.value()) * 2
    with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        session.run(v.assign(doubled))
        session.run(queue.enqueue([doubled, tf.constant("a")]))
        row, name = session.run(queue.dequeue())
        assert name == b"a"
        np.testing.assert_allclose(row, 2 * np.exp(2 * np.exp(np.ones(3))), rtol=1e-5)


def test_servers_that_run_shipped_plans_import_nothing_that_builds_them() -> None:
    with tasks() as (target, found):
        run_one_of_each(target)
        for job, task in found.items():
            modules = task.modules()
            assert "jflow.task.worker.worker" in modules
            assert (job, of_the_building_wing(modules)) == (job, [])


@pytest.mark.parametrize(
    "code",
    [
        "import jflow as tf\ntf.errors.OpError, tf.contrib.learn.RunConfig, tf.estimator.RunConfig",
        pytest.param(
            "from jflow.train import ClusterSpec, Server\n"
            "Server(ClusterSpec({'ps': ['127.0.0.1:0']})).stop()\n"
            "import jflow.launch.child",
        ),
    ],
)
def test_what_a_task_uses_of_the_public_names_imports_nothing_that_builds(code: str) -> None:
    report = "import sys; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    modules = done.stdout.splitlines()
    assert "jflow.base.forks" in modules
    assert of_the_building_wing(modules) == []
