"""The verbs that show a cluster, for people and for programs, and those that end what it has."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import jflow as tf
from jflow.base.text import table
from jflow.cli import watcher
from jflow.cli.main import main
from jflow.errors import FailedPreconditionError, UnavailableError
from jflow.net.protocol import MasterClient
from jflow.net.wire import connect
from jflow.testing import PATIENCE_S, ProcessCluster, start_servers, wait_until

COUNT, TEXT, LIST = int, str, list
TASK = {
    "name": TEXT,
    "address": TEXT,
    "state": TEXT,
    "reason": TEXT,
    "incarnation": COUNT,
    "version": TEXT,
    "pid": COUNT,
    "uptime_s": float,
    "memory_bytes": COUNT,
    "cpu_s": float,
    "n_begun": COUNT,
    "n_compiled": COUNT,
    "totals": dict,
}
"""The fields of a task, and their types; all from "incarnation" on are None if it is not up."""

ITEMS = {
    "devices": {
        **dict.fromkeys(("name", "type"), TEXT),
        **dict.fromkeys(("memory_bytes", "n_abandoned"), COUNT),
        "abandoned_s": (float, type(None)),
        "is_stuck": bool,
    },
    "containers": {"name": TEXT, "n_variables": COUNT, "n_bytes": COUNT, "n_resources": COUNT},
    "variables": {
        **dict.fromkeys(("container", "name", "device", "dtype"), TEXT),
        "shape": LIST,
        "sharding": str,
        "varying": list,
        "n_bytes": COUNT,
    },
    "queues": {
        **dict.fromkeys(("container", "name", "device", "kind", "owner"), TEXT),
        **dict.fromkeys(("size", "n_bytes", "capacity", "n_enqueues", "n_dequeues"), COUNT),
        "capacity_bytes": (int, type(None)),
        "is_closed": bool,
    },
    "sessions": {
        "number": COUNT,
        "age_s": float,
        "n_steps": COUNT,
        "n_waiting": COUNT,
        "claim": TEXT,
        "restarted": LIST,
        "user": TEXT,
    },
    "steps": {
        **dict.fromkeys(("step", "master", "claim", "user"), TEXT),
        **dict.fromkeys(("devices", "waiting_for"), LIST),
        "age_s": float,
        "abandoned_s": (float, type(None)),
        "session": COUNT,
    },
    "threads": {"name": TEXT, "frames": LIST},
    "pending": {
        **dict.fromkeys(("step", "cause", "op", "device"), TEXT),
        "plans": COUNT,
        "age_s": float,
        "edge": (int, type(None)),
        "abandoned_s": (float, type(None)),
    },
}
"""The fields of what is listed, and their types."""


def conforms(found: dict[str, Any], schema: dict[str, Any]) -> None:
    assert {*found} == {*schema}
    for name, kind in schema.items():
        assert isinstance(found[name], kind), name


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[str]]:
    """The targets of a parameter server with a variable and a queue, and of a worker."""
    with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
        x = tf.Variable(tf.numpy.zeros((2, 3), "float32"), name="weights")
        queue = tf.FIFOQueue(8, ["float32"], [()], shared_name="jobs")
        fill = queue.enqueue_many([[1.0, 2.0]])
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
        session = tf.Session(servers[1].target, graph)
        stack.callback(session.close)
        session.run([x.initializer, fill])
        yield [server.target for server in servers]


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main([*arguments, "--timeout", "30"]) == code
    return capsys.readouterr().out


def test_status_is_a_line_for_each_task(
    cluster: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    head, ps, worker = shown(capsys, "status", cluster[0]).splitlines()
    assert head.split()[:5] == ["TASK", "STATE", "ADDRESS", "UP", "MEMORY"]
    assert ps.split()[:3] == ["/job:ps/task:0", "up", cluster[0].removeprefix("grpc://")]
    assert worker.split()[:2] == ["/job:worker/task:0", "up"]
    assert worker.split()[-2:] == ["1", "0"], "a session, no steps"


def test_status_for_programs_has_a_schema(
    cluster: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tasks,) = json.loads(shown(capsys, "status", cluster[1], "--json")).values()
    assert [task["name"] for task in tasks] == ["/job:worker/task:0", "/job:ps/task:0"]
    kinds = ("devices", "sessions", "steps")
    for task in tasks:
        conforms(task, TASK | dict.fromkeys(kinds, LIST))
        for kind in kinds:
            for item in task[kind]:
                conforms(item, ITEMS[kind])
        assert task["devices"][0]["type"] == "CPU"


@pytest.mark.parametrize("kind", [kind for kind in ITEMS if kind != "threads"])
def test_each_kind_is_listed_for_people_and_for_programs(
    cluster: list[str], capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    told = json.loads(shown(capsys, "ls", kind, cluster[0], "--json"))
    assert {*told} == {kind, "tasks"}
    for task in told["tasks"]:
        conforms(task, TASK)
    for item in told[kind]:
        assert item.pop("task").startswith("/job:")
        conforms(item, ITEMS[kind])
    text = shown(capsys, "ls", kind, cluster[0])
    expected = {
        "devices": "/job:ps/task:0/device:CPU:0",
        "containers": "(default)",
        "variables": "weights",
        "queues": "FIFOQueue",
        "sessions": "CLAIM",
        "steps": "no steps",
        "pending": "no pending",
    }
    assert expected[kind] in text
    assert bool(told[kind]) == (kind not in ("steps", "pending"))


def test_stack_says_where_the_threads_of_a_task_are(
    cluster: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, "stack", cluster[0], "--task", "/job:worker/task:0")
    assert text.startswith("/job:worker/task:0 at 127.0.0.1:")
    assert "thread jflow servers" in text
    assert "jflow/task/server/watched.py" in text
    (tasks,) = json.loads(shown(capsys, "stack", cluster[0], "--json")).values()
    for task in tasks:
        conforms(task, TASK | {"steps": LIST, "threads": LIST, "pending": LIST})
        for thread in task["threads"]:
            conforms(thread, ITEMS["threads"])


def test_top_says_what_tasks_use(cluster: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    output = shown(capsys, "top", cluster[0], "--json", "--count", "2", "--interval", "0.01")
    lines = [json.loads(line)["tasks"] for line in output.splitlines()]
    assert len(lines) == 2
    for task in lines[1]:
        assert task["cpu_percent"] >= 0
        assert task["steps_per_s"] >= 0
        assert task["memory_bytes"] > 0
    text = shown(capsys, "top", cluster[0], "--count", "1", "--interval", "0.01")
    assert "CPU %" in text


def test_a_cluster_is_named_by_tf_config(
    cluster: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [target.removeprefix("grpc://") for target in cluster]
    # Of the servers of a cluster any that answers is good.
    config = {"cluster": {"ps": [addresses[0]], "worker": [addresses[1], "127.0.0.1:1"]}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    (tasks,) = json.loads(shown(capsys, "status", "--json")).values()
    assert [task["name"] for task in tasks] == ["/job:ps/task:0", "/job:worker/task:0"]


def test_without_a_cluster_the_command_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["status"]) == 2
    assert "which cluster? TF_CONFIG is not set and no `jflow up`" in capsys.readouterr().err
    assert main(["ls", "queues", "127.0.0.1:1"]) == 2
    assert "TARGET must be grpc://HOST:PORT, got '127.0.0.1:1'" in capsys.readouterr().err
    assert main(["status", "grpc://127.0.0.1:1", "--timeout", "0"]) == 2
    assert "--timeout must be more than 0" in capsys.readouterr().err
    assert main(["reset", "grpc://127.0.0.1:1"]) == 2
    assert "name the containers" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "grpc://127.0.0.1:1", "--timeout", "0.1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_if_the_first_server_does_not_answer_the_others_are_called_at_once(
    cluster: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster of many tasks that is down, or starts, would be waited for once a task."""
    together = threading.Barrier(5)

    def tried(target: str, seconds: float) -> MasterClient:
        if target in cluster:
            return connect(target, seconds)
        if target != "grpc://down:0":
            together.wait(PATIENCE_S)
        raise UnavailableError(f"nothing is at {target}")

    monkeypatch.setattr(watcher, "connect", tried)
    down = [f"grpc://down:{i}" for i in range(6)]
    with (
        pytest.raises(UnavailableError, match=r"none of the 6 .*down:0; .*down:2; and 3 more$"),
        watcher.Watcher(down, PATIENCE_S) as watching,
    ):
        watching.inspect(["steps"])
    with watcher.Watcher([*down[:1], *cluster], PATIENCE_S) as watching:
        assert {seen.is_up for seen in watching.inspect(["steps"])} == {True}


def test_a_stopped_task_is_marked_and_the_others_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProcessCluster(ps=1, workers=1) as processes:
        target = processes.target()
        wait_until(lambda: main(["status", target]) == 0, "both tasks to be up")
        processes.pause("ps")

        def output(*arguments: str) -> str:
            """What the command prints if it could not show all tasks."""
            capsys.readouterr()
            code = main([*arguments, target, "--timeout", "1"])
            return capsys.readouterr().out if code == 3 else ""

        def states(*arguments: str) -> dict[str, str]:
            told = json.loads(output(*arguments, "--json") or '{"tasks": []}')
            return {task["name"]: task["state"] for task in told["tasks"]}

        expected = {"/job:worker/task:0": "up", "/job:ps/task:0": "silent"}
        wait_until(lambda: states("status") == expected, "one to be up, the other marked")
        wait_until(lambda: states("ls", "devices") == expected, "the same in a list")
        words = "/job:ps/task:0: no answer within 1 s"
        wait_until(lambda: words in output("status"), "the same for people")
        processes.resume("ps")
        wait_until(lambda: main(["status", target]) == 0, "both tasks to be up again")


@pytest.mark.long
def test_every_other_verb_marks_a_task_that_is_stopped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProcessCluster(ps=1, workers=1) as processes:
        target = processes.target()
        wait_until(lambda: main(["status", target]) == 0, "both tasks to be up")
        processes.pause("ps")

        def told(*arguments: str, code: int) -> str:
            """What the command prints if it ends with this code, on either stream."""
            capsys.readouterr()
            found = main([*arguments, "--timeout", "1"])
            return "".join(capsys.readouterr()) if found == code else ""

        def states(*arguments: str, code: int) -> dict[str, str]:
            found = json.loads(told(*arguments, "--json", code=code) or '{"tasks": []}')
            return {task["name"]: task["state"] for task in found["tasks"]}

        expected = {"/job:worker/task:0": "up", "/job:ps/task:0": "silent"}
        wait_until(lambda: states("stack", target, code=3) == expected, "the other one's stacks")
        wait_until(lambda: states("doctor", target, code=1) == expected, "a diagnosis")
        verbs = [
            (("ls", "queues"), (), 3, "/job:ps/task:0 is silent: no answer within 1 s"),
            (("top",), ("--json", "--count", "1"), 0, '"state": "silent"'),
            (("stop",), ("--task", "/job:ps/task:0"), 3, "does not stop: no answer within 1 s"),
            (("reset",), ("--default",), 1, "/job:ps/task:0"),
        ]
        for verb, options, code, said in verbs:

            def is_told(
                command: tuple[str, ...] = (*verb, target, *options),
                code: int = code,
                said: str = said,
            ) -> bool:
                return said in told(*command, code=code)

            wait_until(is_told, f"{verb[0]} to name the task")
        processes.resume("ps")


def test_reset_frees_containers_and_stop_ends_servers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = tf.Variable(1.0, name="x")
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
        target = servers[1].target
        with tf.Session(target) as session:
            session.run(x.initializer)
        assert shown(capsys, "reset", target, "--default") == "freed the default container\n"
        with tf.Session(target) as session, pytest.raises(FailedPreconditionError):
            session.run(x)
        assert shown(capsys, "stop", target, "--task", "/job:ps/task:0") == "/job:ps/task:0 stops\n"
        servers[0].join()
        (tasks,) = json.loads(shown(capsys, "stop", target, "--json")).values()
        assert {task["name"]: task["is_stopped"] for task in tasks} == {
            "/job:ps/task:0": True,
            "/job:worker/task:0": True,
        }
        servers[1].join()


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    rows = [("10.0.0.1:2", "9 s"), ("10.0.0.12:2", "10 s")]
    lines = ["ADDRESS       AGE", "10.0.0.1:2    9 s", "10.0.0.12:2  10 s"]
    assert table(["ADDRESS", "AGE"], rows).splitlines() == lines


# timeline -----------------------------------------------------------------------------------------


@contextmanager
def steps_of(target: str) -> Iterator[None]:
    """Runs steps of two tasks one after the other, until the block ends."""
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            count = tf.Variable(0.0, name="count")
            more = count.assign_add(1.0)
        with tf.device("/job:worker/task:0"):
            doubled = more * 2.0
    end, seen = threading.Event(), []

    def run() -> None:
        with tf.Session(target, graph) as session:
            session.run(count.initializer)
            while not end.is_set():
                seen.append(session.run(doubled))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: seen, "the first step")
        yield
    finally:
        end.set()
        thread.join()
    assert seen == [2.0 * (i + 1) for i in range(len(seen))], "what is traced is run once"


@pytest.mark.parametrize("number", [0, 1])
def test_a_timeline_has_the_next_steps_of_other_programs(
    cluster: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    file = tmp_path / "t.json"
    with steps_of(cluster[1]):
        text = shown(capsys, "timeline", cluster[number], "--steps", "3", "-o", str(file))
        shown(capsys, "timeline", cluster[0], "--steps", "1", "-o", str(tmp_path / "t.svg"))
    assert f"3 steps in {file}" in text
    lines = [line.split() for line in text.splitlines()]
    (written,) = [line for line in lines if line[:2] == ["program", "AssignAdd"]]
    assert written[2:4] == ["/job:ps/task:0/device:CPU:0", "3"]
    events = json.loads(file.read_text())["traceEvents"]
    programs = [event["name"] for event in events if event.get("cat") == "program"]
    assert sorted({*programs}) == ["AssignAdd", "mul"]
    assert (tmp_path / "t.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--steps", "0"), "--steps must be at least 1, got 0"),
        (("--steps", "101"), "--steps must be at most 100, got 101"),
        (("--wait", "0"), "--wait must be more than 0, got 0"),
        (("-o", "t.png"), "--output must end with .json or .svg, got 't.png'"),
        (("-o", "nowhere/t.json"), "there is no directory nowhere"),
    ],
)
def test_a_timeline_refuses_what_it_cannot_do(
    cluster: list[str],
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    assert main(["timeline", cluster[0], *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_timeline_without_steps_says_so(
    cluster: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.json"
    assert main(["timeline", cluster[0], "--wait", "0.3", "-o", str(file)]) == 1
    assert "no step ended in 0.3 s" in capsys.readouterr().err
    assert not file.exists()
