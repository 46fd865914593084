"""A cluster across three hosts, of which one is cut off and comes back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jflow.testing import ProgramProcess, run_program
from tests.network_hosts import NetworkHosts

CLIENT = Path(__file__).parent.parent.parent / "programs" / "across_hosts.py"
PS, NEAR, FAR = range(3)
TASKS = {PS: ("ps", 0), NEAR: ("worker", 0), FAR: ("worker", 1)}


@pytest.fixture
def hosts() -> Iterator[NetworkHosts]:
    with NetworkHosts(3) as hosts:
        yield hosts


def environment(hosts: NetworkHosts, host: int | None = None) -> dict[str, str]:
    """The variables of the task of a host, or of a client."""
    cluster = {
        "ps": [f"{hosts.address(PS)}:2222"],
        "worker": [f"{hosts.address(NEAR)}:2222", f"{hosts.address(FAR)}:2222"],
    }
    told: dict[str, object] = {"cluster": cluster}
    if host is not None:
        job, index = TASKS[host]
        told["task"] = {"type": job, "index": index}
    return {
        "TF_CONFIG": json.dumps(told),
        "JFLOW_TOKEN": "of these three hosts, and long enough",
        "JFLOW_INSECURE": "1",
        "JFLOW_LIVENESS_S": "3",
        # Data streams of one kernel and file system would pass beside the network.
        "JFLOW_TRANSPORT": "grpc",
    }


def states(hosts: NetworkHosts) -> list[str]:
    """The states of the tasks, as seen from the host of the client, in the order of `TASKS`."""
    command = [sys.executable, "-m", "jflow", "status", "--json", "--timeout", "20"]
    done = run_program(hosts.command(NEAR, command), environment(hosts))
    return [task["state"] for task in json.loads(done.stdout)["tasks"]]


@pytest.mark.long
def test_a_host_that_is_cut_off_is_noticed_and_the_others_go_on_until_it_is_back(
    hosts: NetworkHosts,
) -> None:
    with ExitStack() as stack:
        for host in TASKS:
            server = hosts.command(host, [sys.executable, "-m", "jflow", "server"])
            task = stack.enter_context(ProgramProcess(server, environment(hosts, host)))
            assert "is ready" in task.read_line()
        command = hosts.command(NEAR, [sys.executable, str(CLIENT)])
        client = stack.enter_context(ProgramProcess(command, environment(hosts)))

        def ask(what: str) -> str:
            client.write_line(what)
            return client.read_line()

        assert [ask("near"), ask("far")] == ["1.0", "10.0"]
        assert states(hosts) == ["up", "up", "up"]
        hosts.cut_off(FAR)
        assert ask("far") == "UnavailableError"
        assert ask("near") == "2.0", "what does not need that host"
        # Whether its neighbours know already that nothing answers there depends on their tables.
        assert states(hosts) in (["up", "up", "silent"], ["up", "up", "down"])
        hosts.heal(FAR)
        assert ask("again") == "opened"
        assert ask("far") == "20.0", "nothing was lost"
        assert states(hosts) == ["up", "up", "up"]
