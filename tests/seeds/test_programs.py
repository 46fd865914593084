"""Programs with the calls of the seed documents, each in a process of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.ports import free_hosts, free_ports
from tests.scripts import run_script, script_process

PROGRAMS = Path(__file__).parent.parent / "programs"
START_TIMEOUT_S = 60


def run(program: str, *arguments: str, **variables: str) -> list[str]:
    """Runs a program to its end; its lines of output."""
    done = run_script(PROGRAMS / program, *arguments, environment=variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@contextmanager
def program(
    name: str, cluster: dict[str, list[str]], job: str, index: int, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """A program that TF_CONFIG tells its task, killed at the end."""
    config = {"cluster": cluster, "task": {"type": job, "index": index}}
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / name), *arguments],
        env=os.environ | {"TF_CONFIG": json.dumps(config)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_until_ready(process: subprocess.Popen[str]) -> str:
    """The line that a server program prints when it serves."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], 1.0)[0]:
            line = process.stdout.readline()
            assert line, f"the server ended with {process.wait()}"
            return line
    raise AssertionError("the server did not start")


@pytest.fixture(scope="module")
def targets() -> Iterator[dict[str, str]]:
    """Two servers on this machine, as the books start them: TF_CONFIG gives hosts without ports.

    One program reads the variable itself, the other one has RunConfig read it.
    """
    hosts = free_hosts(2)
    cluster = {"ps": [hosts[0]], "worker": [hosts[1]]}
    with ExitStack() as stack:
        for (job, host), how in zip(cluster.items(), ("json", "config"), strict=True):
            task = {"cluster": cluster, "task": {"type": job, "index": 0}}
            environment = {"TF_CONFIG": json.dumps(task)}
            server = script_process(PROGRAMS / "task.py", how, environment=environment)
            stack.enter_context(server)
            assert server.read_line() == f"ready at grpc://{host[0]}:2222"
        yield {job: f"grpc://{addresses[0]}" for job, addresses in cluster.items()}


def test_a_counter_made_through_one_server_goes_on_through_the_other(
    targets: dict[str, str],
) -> None:
    assert run("counter.py", targets["worker"], "init") == ["1.0"]
    assert run("counter.py", targets["ps"]) == ["2.0"]
    assert run("counter.py", targets["worker"], "init") == ["1.0"]


@pytest.mark.parametrize("job", ["ps", "worker"])
def test_unpinned_operations_run_on_the_server_of_the_session(
    targets: dict[str, str], job: str
) -> None:
    values, places = run("arithmetic.py", targets[job])
    assert values == "3.0 [np.float32(1.0), np.float32(3.0)]"
    assert places.split("/")[1] == f"job:{job}"


def test_containers_keep_problems_apart_until_they_are_reset(targets: dict[str, str]) -> None:
    assert run("containers.py", targets["worker"], targets["ps"]) == [
        "own 101.0 layer/weight:0",
        "shared 1.0 layer/weight:0",
        "gone layer/weight",
        "own 100.0",
        "shared 1.0",
    ]


@pytest.fixture(scope="module")
def coordinating(targets: dict[str, str]) -> dict[str, str]:
    """The environment of a coordinator of these servers: TF_CONFIG says that it is the chief."""
    cluster = {job: [target.removeprefix("grpc://")] for job, target in targets.items()}
    cluster["chief"] = free_hosts(1)
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})}


def test_a_coordinator_fetches_an_element_of_a_dataset_on_a_worker(
    coordinating: dict[str, str],
) -> None:
    assert run("first_element.py", **coordinating) == ["7"]


def test_a_coordinator_counts_elements_in_a_variable_of_a_parameter_server(
    coordinating: dict[str, str],
) -> None:
    assert run("counted_elements.py", **coordinating) == [
        "5",
        "True 15 /job:ps/task:0/device:CPU:0",
    ]


def test_a_local_session_counts_for_itself() -> None:
    assert run("counter.py", "", "init") == ["1.0"]


def test_tf_config_and_the_command_line_start_a_server() -> None:
    (port,) = free_ports(1)
    config = {"cluster": {"worker": [f"127.0.0.1:{port}"]}, "task": {"type": "worker", "index": 0}}
    process = subprocess.Popen(
        [sys.executable, "-m", "jflow", "server"],
        env=os.environ | {"TF_CONFIG": json.dumps(config)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert f"grpc://127.0.0.1:{port}> is ready" in wait_until_ready(process)
        assert run("counter.py", f"grpc://127.0.0.1:{port}", "init") == ["1.0"]
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.long
def test_one_program_takes_all_roles_from_its_environment_and_ends_with_the_chief() -> None:
    ports = free_ports(3)
    jobs = ("chief", "ps", "worker")
    cluster = {job: [f"127.0.0.1:{port}"] for job, port in zip(jobs, ports, strict=True)}
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / "roles.py")],
            env=os.environ
            | {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})},
            stdout=subprocess.PIPE,
            text=True,
        )
        for job in jobs
    ]
    try:
        told = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert told == ["3.0 6.0 9.0\ndone\n", "done\n", "done\n"]
    assert [process.returncode for process in processes] == [0, 0, 0]


@pytest.mark.long
def test_workers_that_know_their_role_by_tf_config_alone_train_together() -> None:
    ports = free_ports(3)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    cluster = {"ps": addresses[:1], "worker": addresses[1:]}
    tasks = [("ps", 0), ("worker", 0), ("worker", 1)]
    with ExitStack() as stack:
        ps, *workers = [
            stack.enter_context(program("roles_by_config.py", cluster, job, index))
            for job, index in tasks
        ]
        told = [worker.communicate(timeout=300)[0] for worker in workers]
        assert told == ["ready\nTrue True 3.0\n", "ready\nFalse True 3.0\n"]
        assert [worker.returncode for worker in workers] == [0, 0]
        assert ps.poll() is None
