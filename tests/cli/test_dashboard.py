"""The live page without a browser: what it says, and which requests are refused."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import Task
from jflow.cli.dashboard.collector import N_EVENTS, Collector
from jflow.cli.dashboard.command import served
from jflow.cli.main import main
from jflow.cli.watcher import Seen
from jflow.launch.testing.waiting import wait_until
from jflow.state.watch import (
    QueueStatus,
    SessionStatus,
    StepStatus,
    TaskReport,
    TaskState,
    TaskStatus,
    WaitStatus,
)
from jflow.testing import start_servers

PS, WORKER = Task("ps", 0), Task("worker", 0)


def up(task: Task, life: int = 1, **fields: Any) -> Seen:
    """A task that answers, after 10 s and each second later 100 steps more."""
    status = TaskStatus(
        task=str(task),
        address="127.0.0.1:1",
        incarnation=life,
        version="1",
        pid=1,
        uptime_s=fields.pop("uptime_s", 10.0),
        memory_bytes=1 << 20,
        cpu_s=fields.pop("cpu_s", 1.0),
        n_begun=fields.pop("n_begun", 0),
        n_compiled=0,
        totals={"steps": len(fields.get("steps", ())), "sessions": 0},
        **fields,
    )
    return Seen(TaskReport(task, "127.0.0.1:1", TaskState.UP), status)


def silent(task: Task) -> Seen:
    return Seen(TaskReport(task, "127.0.0.1:1", TaskState.SILENT, "no answer within 3 s"), None)


# What it says -------------------------------------------------------------------------------------


def test_tasks_have_rates_and_how_many_steps_of_others_wait_for_them() -> None:
    collector = Collector()
    cause, device = f"for a value from {WORKER}", f"{WORKER}/device:CPU:0"
    wait = WaitStatus("a1", 1, 2.0, cause, "", device, 4)
    step = StepStatus("a1", 2.0, (f"{PS}/device:CPU:0",), (), str(PS))
    collector.observe([up(PS), up(WORKER)], 100.0)
    later = up(PS, uptime_s=12.0, cpu_s=2.0, n_begun=200, steps=(step,), pending=(wait,))
    collector.observe([later, up(WORKER, uptime_s=12.0)], 102.0)
    ps, worker = collector.state["tasks"]
    assert (ps["cpu_percent"], ps["steps_per_s"], ps["waited_for"]) == (50.0, 100.0, 0)
    assert (worker["cpu_percent"], worker["waited_for"]) == (0.0, 0.5), "in one of two looks"
    (shown,) = collector.state["steps"]
    assert shown["tasks"] == [str(PS)]
    assert shown["waits"] == [{"task": str(PS), "what": f"waits {cause}"}]
    assert collector.state["throughput"] == [0.0, 100.0]


def test_an_abandoned_step_says_of_which_client_it_is() -> None:
    collector = Collector()
    step = StepStatus("a1", 9.0, master=str(WORKER), claim="run", abandoned_s=5.0, session=3)
    collector.observe([up(PS, steps=(step,)), up(WORKER)], 100.0)
    (shown,) = collector.state["steps"]
    what = f"computes, abandoned 5.0 s ago; of session 3 of {WORKER} that has claimed 'run'"
    assert shown["waits"] == [{"task": str(PS), "what": what}]


def test_a_task_that_does_not_answer_is_still_there() -> None:
    collector = Collector()
    collector.observe([up(PS), silent(WORKER)], 100.0)
    row = collector.state["tasks"][1]
    assert (row["state"], row["reason"]) == ("silent", "no answer within 3 s")
    assert row["memory_bytes"] is row["uptime_s"] is None


def test_events_tell_what_has_changed_and_nothing_else() -> None:
    collector = Collector()

    def events(*seen: Seen) -> list[str]:
        before = len(collector.state.get("events", ()))
        collector.observe(seen, 1.0)
        found = collector.state["events"]
        return [event["what"] for event in found[: len(found) - before]][::-1]

    session = SessionStatus(3, 1.0, 1, 0)
    queue = QueueStatus("", "jobs", str(PS), "FIFOQueue", 0, 0, 8, None, 0, 0, True)
    assert events(up(PS), up(WORKER)) == ["the cluster has 2 tasks"]
    assert events(up(PS), up(WORKER)) == []
    assert events(up(PS, sessions=(session,)), up(WORKER)) == [f"session 3 of {PS} was opened"]
    assert events(up(PS, sessions=(session,)), silent(WORKER)) == [
        f"{WORKER} is silent: no answer within 3 s"
    ]
    assert events(up(PS, queues=(queue,)), up(WORKER, life=2)) == [
        f"{WORKER} is up",
        f"{WORKER} has restarted: what it held is lost",
        f"session 3 of {PS} has ended",
        "queue jobs (container (default)) was closed",
    ]


def test_sessions_of_a_silent_task_have_not_ended() -> None:
    collector = Collector()
    session = SessionStatus(3, 1.0, 1, 0)
    for seen in ([up(PS, sessions=(session,))], [silent(PS)], [up(PS, sessions=(session,))]):
        collector.observe(seen, 1.0)
    assert not [one for one in collector.state["events"] if "ended" in one["what"]]


def test_a_cluster_that_is_lost_is_said_once_and_what_was_seen_stays() -> None:
    collector = Collector()
    collector.observe([up(PS)], 1.0)
    for _ in range(3):
        collector.fail("no server answers", 2.0)
    assert collector.state["error"] == "no server answers"
    assert len(collector.state["tasks"]) == 1
    assert [one["what"] for one in collector.state["events"]].count("no server answers") == 1


def test_old_events_are_dropped() -> None:
    collector = Collector()
    for i in range(N_EVENTS + 50):
        collector.observe([up(PS, life=i + 1)], float(i))
    assert len(collector.state["events"]) == N_EVENTS


# Which requests are refused -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[str]]:
    with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
        variables = [tf.Variable(np.zeros(3, np.float32), name=f"v{i:03}") for i in range(120)]
        queue = tf.FIFOQueue(8, ["float32"], [()], shared_name="jobs")
        fill = queue.enqueue_many([[1.0, 2.0]])
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
        session = tf.Session(servers[1].target, graph)
        stack.callback(session.close)
        session.run([*(one.initializer for one in variables), fill])
        yield [server.target for server in servers]


@pytest.fixture(scope="module")
def url(cluster: list[str]) -> Iterator[str]:
    with served(cluster, 30.0) as url:
        yield url


class Reply:
    """The answer to a request of the page's server."""

    def __init__(self, url: str, path: str, method: str = "GET", **headers: str | None) -> None:
        address, _, token = url.partition("/#token=")
        given: dict[str, str | None] = {"Authorization": f"Bearer {token}", **headers}
        request = urllib.request.Request(f"{address}{path}", method=method)
        for name, value in given.items():
            if value is not None:
                request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                self.status, self.headers, self.text = reply.status, reply.headers, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                self.status, self.headers, self.text = error.code, error.headers, error.read()

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def test_the_page_has_no_data_and_needs_no_token(url: str) -> None:
    for path, kind in (("/", "html"), ("/dashboard.js", "javascript"), ("/dashboard.css", "css")):
        reply = Reply(url, path, Authorization=None)
        assert reply.status == 200
        assert kind in reply.headers["Content-Type"]
        assert b"/job:" not in reply.text
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/api/state", "/api/variables?task=/job:ps/task:0", "/api/step"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer ünïcode"}, 401),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
    ],
    ids=str,
)
def test_others_are_refused(
    url: str, path: str, headers: dict[str, str | None], status: int
) -> None:
    encoded = {
        name: None if value is None else value.encode().decode("latin-1")
        for name, value in headers.items()
    }
    reply = Reply(url, path, **encoded)
    assert reply.status == status
    assert b"/job:" not in reply.text


def test_nothing_can_be_changed_and_no_other_file_is_served(url: str) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert Reply(url, "/api/state", method).status == 405
    for path in ("/app.py", "/../app.py", "/%2e%2e/app.py", "/page/index.html", "/api/reset"):
        assert Reply(url, path).status == 404


def test_the_state_of_a_cluster_is_shown(url: str) -> None:
    wait_until(lambda: not Reply(url, "/api/state").json["error"], "a look")
    state = Reply(url, "/api/state").json
    assert {task["name"] for task in state["tasks"]} == {str(PS), str(WORKER)}
    (queue,) = state["queues"]
    assert (queue["name"], queue["size"], queue["capacity"]) == ("jobs", 2, 8)
    (container,) = state["containers"]
    assert (container["task"], container["n_variables"]) == (str(PS), 120)
    (session,) = state["sessions"]
    assert session["task"] == str(WORKER)


def test_variables_come_page_by_page(url: str) -> None:
    first = Reply(url, f"/api/variables?task={PS}").json
    assert (first["total"], len(first["variables"]), first["error"]) == (120, 100, "")
    rest = Reply(url, f"/api/variables?task={PS}&first=100").json
    names = [one["name"] for one in first["variables"] + rest["variables"]]
    assert names == [f"v{i:03}" for i in range(120)]


@pytest.mark.parametrize(
    "query", ["task=nonsense", "task=/job:ps/task:7", "task=/job:ps/task:0&first=x"]
)
def test_a_bad_question_gets_an_answer(url: str, query: str) -> None:
    reply = Reply(url, f"/api/variables?{query}")
    assert reply.status == 400
    assert reply.json["error"]


def test_the_next_step_is_drawn_where_it_ran(url: str, cluster: list[str]) -> None:
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            more = tf.Variable(0.0, name="counter").assign_add(1.0)
        with tf.device("/job:worker/task:0"):
            doubled = more * 2.0
    end = threading.Event()

    def run() -> None:
        with tf.Session(cluster[1], graph) as session:
            session.run(tf.global_variables_initializer())
            while not end.is_set():
                session.run(doubled)

    with graph.as_default():
        thread = threading.Thread(target=run)
        thread.start()
    try:
        found = Reply(url, "/api/step").json
    finally:
        end.set()
        thread.join()
    assert found["timeline"].startswith("<svg")
    assert found["plan"].startswith("<svg")
    assert "counter" in found["plan"]


def test_without_a_step_the_page_says_so(url: str) -> None:
    reply = Reply(url, "/api/step?wait=0.2")
    assert reply.status == 400
    assert "no step" in reply.json["error"]


# The command --------------------------------------------------------------------------------------


def test_the_command_serves_until_it_is_interrupted(cluster: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "jflow", "dashboard", cluster[0]], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split("the page is at ")[1].strip()
        assert Reply(url, "/").status == 200
        process.terminate()
        assert process.wait() == 0


def test_a_port_that_is_taken_is_refused(
    url: str, cluster: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    port = url.split(":")[2].split("/", maxsplit=1)[0]
    assert main(["dashboard", cluster[0], "--port", port]) == 2
    assert f"--port: cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_without_starlette_the_command_says_what_to_install(
    cluster: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["dashboard", cluster[0]]) == 1
    assert "pip install 'jflow[dashboard]'" in capsys.readouterr().err
