"""`jflow doctor`: which source won, what it saw, and each thing that it finds."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import jflow as tf
from jflow.base.versions import VERSION
from jflow.cli.main import main
from jflow.testing import start_servers
from tests.base.cluster.test_engines import MPI, POD, STEP
from tests.ports import free_ports

SCHEMA = {"source": str, "task": str, "sources": list, "tasks": list, "findings": list}
SOURCE = {"name": str, "variables": dict, "says": str, "has_won": bool}
TASK = {
    **dict.fromkeys(("name", "address", "state"), str),
    "version": (str, type(None)),
    "incarnation": (int, type(None)),
}
FINDING = {"code": str, "what": str, "is_problem": bool}


def conforms(found: dict[str, Any], schema: dict[str, Any]) -> None:
    assert {*found} == {*schema}
    for name, kind in schema.items():
        assert isinstance(found[name], kind), name


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user without a cluster, with a token of their own."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("JFLOW_TOKEN", "a token of this test alone, which is long enough")
    monkeypatch.setenv("HOME", str(tmp_path))


def configure(monkeypatch: pytest.MonkeyPatch, cluster: Any, *task: Any) -> None:
    config: dict[str, Any] = {"cluster": cluster}
    if task:
        config["task"] = {"type": task[0], "index": task[1]}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def findings(
    capsys: pytest.CaptureFixture[str], *arguments: str, timeout: float = 30.0
) -> dict[str, str]:
    """What is found, by its code; checks the form of the answer and the exit code."""
    code = main(["doctor", *arguments, "--json", "--timeout", str(timeout)])
    told = json.loads(capsys.readouterr().out)
    conforms(told, SCHEMA)
    for kind, schema in (("sources", SOURCE), ("tasks", TASK), ("findings", FINDING)):
        for item in told[kind]:
            conforms(item, schema)
    assert code == int(any(one["is_problem"] for one in told["findings"]))
    return {one["code"]: one["what"] for one in told["findings"]}


@pytest.fixture
def servers() -> Iterator[list[tf.train.Server]]:
    """A parameter server and a worker in this process."""
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": 1, "worker": 1})


def addresses(servers: list[tf.train.Server]) -> list[str]:
    return [server.target.removeprefix("grpc://") for server in servers]


def test_a_cluster_that_works_has_no_problem(
    servers: list[tf.train.Server],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ps, worker = addresses(servers)
    configure(monkeypatch, {"ps": [ps], "worker": [worker]}, "worker", 0)
    assert findings(capsys) == {}
    assert main(["doctor", "--timeout", "30"]) == 0
    text = capsys.readouterr().out
    assert "*  TF_CONFIG   /job:worker/task:0 of a cluster with 1 ps, 1 worker" in text
    assert "Slurm       nothing: SLURM_... is not set" in text
    assert f"/job:ps/task:0      up     {ps}" in text
    assert f"{servers[0].incarnation:x}" in text
    assert text.endswith("no problem was found\n")
    assert 'TF_CONFIG={"cluster"' in text


def test_a_target_is_examined_without_a_source(
    servers: list[tf.train.Server], capsys: pytest.CaptureFixture[str]
) -> None:
    assert findings(capsys, servers[0].target) == {}


@pytest.mark.parametrize(
    ("environ", "name"), [(MPI, "Open MPI"), (STEP, "Slurm"), (POD, "Kubernetes")]
)
def test_the_source_that_won_and_what_it_saw_are_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    environ: dict[str, str],
    name: str,
) -> None:
    monkeypatch.setattr("jflow.cli.probing.probe_all", lambda *_: ([], []))
    for variable, text in environ.items():
        monkeypatch.setenv(variable, text)
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["source"] == name
    (won,) = [one for one in told["sources"] if one["has_won"]]
    assert won["name"] == name
    assert won["variables"]
    assert {*won["variables"].items()} <= {*environ.items()}


def test_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys)
    assert {*found} == {"no_cluster"}
    assert "set TF_CONFIG, or start `jflow up`" in found["no_cluster"]


def test_a_misspelt_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"clutser": {"ps": ["a:1"]}}')
    found = findings(capsys)
    assert {*found} == {"malformed"}
    assert "did you mean 'cluster'?" in found["malformed"]


def test_a_misspelt_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TFCONFIG", "{}")
    monkeypatch.setenv("JFLOW_JOB", "ps=1")
    told = main(["doctor"]), capsys.readouterr().out
    assert told[0] == 1
    assert "the variable TFCONFIG is not read; did you mean TF_CONFIG?" in told[1]
    assert "the variable JFLOW_JOB is not read; did you mean JFLOW_JOBS?" in told[1]


def test_two_sources_that_contradict_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable, text in STEP.items():
        monkeypatch.setenv(variable, text)
    configure(monkeypatch, {"worker": ["a:1", "b:1"]}, "worker", 0)
    found = findings(capsys)
    assert {*found} == {"contradiction"}
    assert "TF_CONFIG and Slurm contradict each other" in found["contradiction"]


def test_a_port_that_another_process_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        configure(monkeypatch, {"worker": [address]}, "worker", 0)
        found = findings(capsys, timeout=0.5)
    assert {*found} == {"port_taken"}
    assert f"the port of /job:worker/task:0, {address}, is taken" in found["port_taken"]


def test_a_port_that_another_process_has_bound_and_does_not_listen_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        configure(monkeypatch, {"worker": [address]}, "worker", 0)
        found = findings(capsys)
    assert f"{address}, is taken by another process" in found["port_taken"]


def test_something_else_that_listens_at_the_address_of_a_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        configure(monkeypatch, {"ps": [address]})
        found = findings(capsys, timeout=0.5)
    assert f"what listens at {address} does not answer as /job:ps/task:0" in found["wrong_server"]


def test_the_address_of_another_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(monkeypatch, {"worker": ["192.0.2.1:2222"]}, "worker", 0)
    found = findings(capsys)
    assert {*found} == {"other_machine"}
    assert "that is the address of another machine; start the task there" in found["other_machine"]


def test_a_name_that_does_not_resolve(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(monkeypatch, {"worker": ["no-such-host.invalid"]}, "worker", 0)
    found = findings(capsys)
    assert {*found} == {"unresolved_name"}
    assert "'no-such-host.invalid' does not resolve" in found["unresolved_name"]


def test_two_tasks_at_one_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(monkeypatch, {"ps": ["a:1"], "worker": ["a:1"]}, "ps", 0)
    assert "/job:ps/task:0 and /job:worker/task:0 have one address" in findings(capsys)["malformed"]


def test_another_token(
    servers: list[tf.train.Server],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ps, worker = addresses(servers)
    configure(monkeypatch, {"ps": [ps], "worker": [worker]}, "worker", 0)
    monkeypatch.setenv("JFLOW_TOKEN", "another token, which is long enough, too")
    found = findings(capsys)
    assert {*found} == {"other_token"}
    assert f"{worker} has another token" in found["other_token"]
    monkeypatch.delenv("TF_CONFIG")
    (code,) = findings(capsys, servers[0].target)
    assert code == "other_token", "also of a server that was named"


def test_version_skew(
    servers: list[tf.train.Server],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("jflow.cli.probing._OWN_VERSION", "0.0.1")
    found = findings(capsys, servers[0].target)
    assert {*found} == {"version_skew"}
    assert f"has jflow {tf.__version__}, and this is 0.0.1" in found["version_skew"]


def test_another_version_of_the_protocol(
    servers: list[tf.train.Server],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ps, worker = addresses(servers)
    configure(monkeypatch, {"ps": [ps], "worker": [worker]}, "worker", 0)
    # The servers of this process speak the next version only. What calls still says this one.
    monkeypatch.setattr("jflow.net.protocol.handshake.VERSION", VERSION + 1)
    monkeypatch.setattr("jflow.net.protocol.handshake.OLDEST_VERSION", VERSION + 1)
    code = main(["doctor", "--timeout", "30"])
    problems = [line for line in capsys.readouterr().out.splitlines() if "problem: " in line]
    assert code == 1
    assert problems == [
        f"problem: {task} at {address} speaks version {VERSION + 1} of jflow's protocol and this "
        f"end versions {VERSION - 1} and {VERSION}; install the same version of jflow on both, or "
        'upgrade them in steps of one version (docs/operating.md, "Upgrading a cluster"), and '
        "start the tasks again [version_skew]"
        for task, address in (("/job:ps/task:0", ps), ("/job:worker/task:0", worker))
    ]


def test_a_task_that_came_back_as_another_life(
    servers: list[tf.train.Server], capsys: pytest.CaptureFixture[str]
) -> None:
    ps, worker = servers
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps"):
            y = tf.constant(1.0) + 1.0
        with tf.Session(worker.target, graph) as session:
            session.run(y)
            assert "restarted" not in findings(capsys, worker.target)
            ps.stop()
            with tf.train.Server(worker.cluster_spec, "ps", 0):
                found = findings(capsys, worker.target)
    assert "/job:ps/task:0 came back as another life" in found["restarted"]
    assert "of /job:worker/task:0 used it" in found["restarted"]


@pytest.mark.parametrize(("task", "code"), [(("evil", 0), "unknown_task"), ((), "no_task")])
def test_a_role_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    task: tuple[Any, ...],
    code: str,
) -> None:
    (port,) = free_ports(1)
    configure(monkeypatch, {"ps": [f"127.0.0.1:{port}"]}, *task)
    found = findings(capsys)
    assert {*found} == {code, "not_started"}
    assert "task" in found[code]


def test_some_tasks_that_are_not_there_are_a_problem(
    servers: list[tf.train.Server],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ps, worker = addresses(servers)
    configure(monkeypatch, {"ps": [ps], "worker": [worker]}, "worker", 0)
    servers[0].stop()
    assert f"nothing listens for /job:ps/task:0 at {ps}" in findings(capsys)["down"]


def test_a_cluster_that_two_know_differently(
    servers: list[tf.train.Server],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ps, worker = addresses(servers)
    configure(monkeypatch, {"ps": [ps], "worker": ["127.0.0.1:1"]}, "ps", 0)
    what = findings(capsys)["other_cluster"]
    assert "/job:worker/task:0 is at 127.0.0.1:1 by TF_CONFIG, and " in what
    assert f"at {worker} by /job:ps/task:0" in what
