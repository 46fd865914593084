"""The metrics of a task: what they say, for which callers, and what the board shows of them."""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families

import jflow as tf
from jflow.base.cluster import Task
from jflow.cli.main import main
from jflow.errors import InvalidArgumentError, UnknownError
from jflow.net.wire import load_secret, load_tls
from jflow.state.watch import CoordinatorStatus, StatusRequest, TaskStatus
from jflow.task.server import Server
from jflow.task.server.metrics import METRICS, serve_metrics
from jflow.testing import PATIENCE_S, start_servers
from tests.certificates import make_certificates

BOARD = Path(__file__).parents[3] / "docs" / "grafana.json"

Started = Callable[..., str]


def read(address: str, *, context: ssl.SSLContext | None = None, **headers: str) -> str:
    request = urllib.request.Request(address)
    for name, value in headers.items():
        request.add_header(name, value)
    with urllib.request.urlopen(request, timeout=60, context=context) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain")
        text: str = reply.read().decode()
        return text


def samples(text: str) -> dict[tuple[str, ...], float]:
    """By name and the values of its labels but for the task, sorted by label, each sample."""
    return {
        (one.name, *(value for name, value in sorted(one.labels.items()) if name != "task")): (
            one.value
        )
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[str, str]]]:
    """Starts a parameter server whose metrics are served; returns its target and their address."""
    with ExitStack() as stack:

        def start(place: str = "0", labels: str = "") -> tuple[str, str]:
            monkeypatch.setenv("JFLOW_METRICS", place)
            monkeypatch.setenv("JFLOW_METRICS_LABELS", labels)
            (server,) = start_servers(stack.enter_context, {"ps": 1})
            assert server._metrics is not None
            return server.target, server._metrics.address

        yield start


def use(target: str) -> tf.Session:
    """Makes two variables in two containers, and a queue in which two gets wait."""
    with tf.Graph().as_default() as graph:
        with tf.container("digits"):
            first = tf.Variable(np.zeros(10, np.float32), name="first")
            queue = tf.FIFOQueue(8, ["float32"], [()], shared_name="jobs")
            fill = queue.enqueue_many([[1.0, 2.0, 3.0]])
        second = tf.Variable(1.0, name="second")
        session = tf.Session(target, graph)
        session.run([first.initializer, second.initializer, fill])
        return session


def test_metrics_say_what_the_task_holds_and_does(served: Callable[..., tuple[str, str]]) -> None:
    target, address = served()
    with use(target):
        found = samples(read(address))
    assert found["jflow_container_bytes", "digits"] == 40
    assert found["jflow_container_bytes", ""] == 4
    assert found["jflow_container_variables", "digits"] == 1
    assert found["jflow_queue_elements", "digits"] == 3
    assert found["jflow_sessions",] == 1
    assert found["jflow_steps_total",] >= 1
    assert found["jflow_running_steps",] == 0
    assert found["process_resident_memory_bytes",] > 1e6
    assert not [key for key in found if "first" in key or "jobs" in key], "no label by name"


def test_labels_by_name_are_there_if_they_are_wanted(
    served: Callable[..., tuple[str, str]],
) -> None:
    target, address = served(labels="queues, variables")
    with use(target):
        found = samples(read(address))
    assert found["jflow_variable_bytes", "digits", "first"] == 40
    assert found["jflow_queue_elements", "digits", "jobs"] == 3


def test_many_variables_are_not_many_series(served: Callable[..., tuple[str, str]]) -> None:
    target, address = served()
    with tf.Graph().as_default() as graph:
        made = [tf.Variable(np.float32(i), name=f"v{i}") for i in range(300)]
        with tf.Session(target, graph) as session:
            before = len(samples(read(address)))
            session.run([one.initializer for one in made])
            assert len(samples(read(address))) <= before + 3


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", ""])
def test_a_name_that_resolves_to_this_machine_reads_nothing(
    served: Callable[..., tuple[str, str]], host: str
) -> None:
    _, address = served()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        read(address, Host=host)


def test_nothing_can_be_sent(served: Callable[..., tuple[str, str]]) -> None:
    _, address = served()
    request = urllib.request.Request(address, data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=60)


def test_the_endpoint_ends_with_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JFLOW_METRICS", "0")
    with Server.create_local_server() as server:
        assert server._metrics is not None
        address = server._metrics.address
        read(address)
    with pytest.raises(urllib.error.URLError, match="refused"):
        read(address)


def test_without_the_variable_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JFLOW_METRICS", raising=False)
    with Server.create_local_server() as server:
        assert server._metrics is None


def test_a_port_that_is_taken_is_an_error_or_the_next_one_is_used(
    served: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = served()
    port = int(address.rsplit(":", 1)[1].split("/")[0])
    monkeypatch.setenv("JFLOW_METRICS", str(port))
    with pytest.raises(UnknownError, match=f"JFLOW_METRICS: cannot listen on 127.0.0.1:{port}"):
        Server.create_local_server()
    monkeypatch.setenv("JFLOW_METRICS", f"{port}+")
    with Server.create_local_server() as server:
        assert server._metrics is not None
        assert f":{port}/" not in server._metrics.address
        read(server._metrics.address)


@pytest.mark.parametrize("place", ["x", "70000", "1.2.3.4:x", "-1", "+"])
def test_a_malformed_place_is_refused(place: str) -> None:
    with pytest.raises(InvalidArgumentError, match="JFLOW_METRICS must be PORT or HOST:PORT"):
        serve_metrics(Task("ps", 0), _no_look, None, "", {"JFLOW_METRICS": place})


def test_an_unknown_label_is_refused() -> None:
    environ = {"JFLOW_METRICS": "0", "JFLOW_METRICS_LABELS": "queues,steps"}
    with pytest.raises(InvalidArgumentError, match="some of queues, variables, got 'steps'"):
        serve_metrics(Task("ps", 0), _no_look, None, "", environ)


def test_without_certificates_others_cannot_reach_it() -> None:
    with pytest.raises(InvalidArgumentError, match="which others can reach: set JFLOW_TLS_DIR"):
        serve_metrics(Task("ps", 0), _no_look, None, "", {"JFLOW_METRICS": "0.0.0.0:0"})


def _no_look(_: Any) -> Any:
    raise AssertionError("nothing is looked at")


def test_the_token_for_metrics_is_not_that_of_the_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["metrics-token"]) == 0
    token = capsys.readouterr().out.strip()
    assert token == load_secret().key(METRICS).hex()
    assert len(token) == 64


def test_beyond_the_loopback_callers_need_a_certificate_and_the_token(tmp_path: Path) -> None:
    folder = {"JFLOW_TLS_DIR": str(make_certificates(tmp_path))}
    task = Task("ps", 0)
    environ = {"JFLOW_METRICS": "127.0.0.2:0"}  # the loopback's, but treated as any other address
    served = serve_metrics(task, _status, load_tls(task, folder), "token", environ)
    assert served is not None
    client = load_tls(None, folder)
    assert client is not None
    context = ssl.create_default_context(cafile=client.authority_path)
    context.check_hostname = False
    try:
        assert served.address.startswith("https://127.0.0.2:")
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
            read(served.address, context=context, Authorization="Bearer token")
        context.load_cert_chain(client.identity_path)
        text = read(served.address, context=context, Authorization="Bearer token")
        assert samples(text)["jflow_sessions",] == 0
        for given in ("Bearer wrong", "token", ""):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                read(served.address, context=context, Authorization=given)
    finally:
        served.close()


def test_a_caller_that_says_nothing_keeps_no_other_waiting(tmp_path: Path) -> None:
    folder = {"JFLOW_TLS_DIR": str(make_certificates(tmp_path))}
    served = serve_metrics(
        Task("ps", 0),
        _status,
        load_tls(Task("ps", 0), folder),
        "token",
        {"JFLOW_METRICS": "127.0.0.2:0"},
    )
    client = load_tls(None, folder)
    assert served is not None
    assert client is not None
    context = ssl.create_default_context(cafile=client.authority_path)
    context.check_hostname = False
    context.load_cert_chain(client.identity_path)
    port = int(served.address.rsplit(":", 1)[1].split("/")[0])
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.2", port)))
        assert "jflow_sessions" in read(
            served.address, context=context, Authorization="Bearer token"
        )
        start = time.monotonic()
        served.close()
        assert time.monotonic() - start < PATIENCE_S


def test_a_port_that_was_read_can_be_used_again_at_once() -> None:
    environ, task = {"JFLOW_METRICS": "0"}, Task("ps", 0)
    for _ in range(3):
        served = serve_metrics(task, _status, None, "", environ)
        assert served is not None
        read(served.address)
        served.close()
        environ = {"JFLOW_METRICS": served.address.split("/")[2]}


def test_rows_of_the_same_labels_are_one_sample() -> None:
    one = CoordinatorStatus("", 1, 2, 3, 0, 0, 0, ())

    def look(_: StatusRequest) -> Any:
        return _status(_)[0], (one, one)

    served = serve_metrics(Task("ps", 0), look, None, "", {"JFLOW_METRICS": "0"})
    assert served is not None
    text = read(served.address)
    served.close()
    assert samples(text)["jflow_closures", "", "running"] == 4
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len({*lines})


def _status(_: StatusRequest) -> tuple[TaskStatus, tuple[()]]:
    totals = {"steps": 0, "sessions": 0}
    return TaskStatus("/job:ps/task:0", "", 1, "1", 1, 1.0, 1, 1.0, 0, 0, totals), ()


# The board ----------------------------------------------------------------------------------------


def test_the_board_is_one_of_grafana() -> None:
    content = json.loads(BOARD.read_text())
    board = Dashboard.from_json(content)
    written = json.loads(JSONEncoder(sort_keys=True).encode(board))
    assert written["title"] == content["title"]
    assert len(written["panels"]) == len(content["panels"])
    for panel in content["panels"]:
        assert panel["type"] in {"timeseries", "stat"}
        place = panel["gridPos"]
        assert 0 < place["w"] <= 24 - place["x"]


def test_the_board_shows_metrics_that_there_are(
    served: Callable[..., tuple[str, str]],
) -> None:
    target, address = served()
    with use(target):
        text = read(address)
    known = {one.name for family in text_string_to_metric_families(text) for one in family.samples}
    known |= {family.name for family in text_string_to_metric_families(text)}
    for panel in json.loads(BOARD.read_text())["panels"]:
        for query in panel["targets"]:
            names = set(re.findall(r"\b(?:jflow|process)_\w+", query["expr"]))
            assert names
            assert names <= known, query["expr"]
