"""The programs of the form of 2017: a parameter server and two workers, as processes."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.scripts import script_process

PROGRAMS = Path(__file__).parent.parent.parent / "examples" / "tensorflow_1"

ACCURACY = re.compile(r"accuracy ([\d.]+)")

REACHED = {
    "mnist_supervisor.py": (150, 2, 0.85),
    "sync_replicas.py": (60, 2, 0.8),
    "text_classifier.py": (60, 2, 0.8),
    "towers.py": (60, 1, 0.8),
}
"""The number of steps, how many workers print an accuracy, and what it has to be at least."""


@pytest.mark.parametrize("name", REACHED)
def test_a_program_of_2017_learns_on_a_cluster_of_processes(name: str, tmp_path: Path) -> None:
    n_steps, n_printing, least = REACHED[name]
    ports = [f"localhost:{port}" for port in free_ports(3)]
    workers = ",".join(ports[1:])
    hosts = [f"--ps_hosts={ports[0]}", f"--worker_hosts={workers}", f"--steps={n_steps}"]
    environment = {"JFLOW_DATA_ROOTS": str(tmp_path)}
    with ExitStack() as stack:
        started = {}
        for job, index in (("ps", 0), ("worker", 0), ("worker", 1)):
            task = [*hosts, f"--job_name={job}", f"--task_index={index}"]
            process = script_process(PROGRAMS / name, *task, environment=environment)
            stack.enter_context(process)
            started[job, index] = process
        for index in range(n_printing):
            lines = iter(started["worker", index].read_line, "")
            found = next(filter(None, map(ACCURACY.search, lines)), None)
            assert found is not None, f"{name}: worker {index} printed no accuracy"
            assert float(found[1]) >= least
