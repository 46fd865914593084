"""The verb `jflow logs`: finding the logs of tasks on this machine, their last lines, following."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from jflow.base.cluster import Task
from jflow.base.logs import LineFormatter
from jflow.cli import logs as module
from jflow.cli.logs import LogTail, find_logs
from jflow.cli.main import main
from jflow.launch import LocalCluster
from jflow.net.wire.running_ups import announced
from jflow.testing import start_servers, wait_until


@pytest.fixture(autouse=True)
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def of_up(user_folder: Path) -> Path:
    """The directory of the logs of a `jflow up` whose tasks do not answer."""
    folder = user_folder / "logs"
    folder.mkdir()
    (folder / "ps-0.log").write_text("".join(f"line {n}\n" for n in range(50)))
    (folder / "worker-0.log").write_text("\x1b[2Jforged\nunfini")
    return folder


TARGETS = [f"grpc://127.0.0.1:1?task=/job:{task}/task:0" for task in ("ps", "worker")]


def test_a_tail_gives_the_last_whole_lines_and_then_what_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"{n}\n" for n in range(100)) + "unfini")
    for block in (1, 3, 64, 1 << 16):
        monkeypatch.setattr(module, "_BLOCK_BYTES", block)
        for n in (0, 1, 7, 99, 100, 500):
            assert LogTail(path, n).read() == [str(i) for i in range(100)][100 - min(n, 100) :]
    tail = LogTail(path, 1)
    assert tail.read() == ["99"]
    assert tail.read() == []
    with path.open("a") as file:
        file.write("shed\nnext\n")
    assert tail.read() == ["unfinished", "next"]
    path.write_text("new\n")
    assert tail.read() == ["new"], "it was shortened"
    path.rename(tmp_path / "old")
    assert tail.read() == []
    path.write_text("another file\n")
    assert tail.read() == ["another file"]


def test_the_logs_of_a_jflow_up_are_found_although_no_task_answers(
    of_up: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with announced(TARGETS, of_up):
        assert main(["logs", "--lines", "2"]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "/job:ps/task:0 line 48",
            "/job:ps/task:0 line 49",
            r"/job:worker/task:0 \x1b[2Jforged",
        ]
        assert main(["logs", "/job:ps/task:0", "--lines", "1"]) == 0
        assert capsys.readouterr().out == "line 49\n", "one task needs no name"
        assert main(["logs", "--lines", "1", "--json"]) == 0
        (tasks,) = json.loads(capsys.readouterr().out).values()
        ps = {"name": "/job:ps/task:0", "path": str(of_up / "ps-0.log"), "reason": ""}
        assert tasks[0] == ps | {"lines": ["line 49"]}
        assert main(["logs", "/job:gpu/task:0"]) == 2
        assert "has no /job:gpu/task:0; it has /job:ps/task:0, /job" in capsys.readouterr().err
        (of_up / "ps-0.log").unlink()
        assert main(["logs"]) == 3
        assert f"/job:ps/task:0: no {of_up / 'ps-0.log'}" in capsys.readouterr().out


def test_where_there_is_no_log_on_this_machine_each_task_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        (server,) = start_servers(stack.enter_context, {"worker": 1})
        monkeypatch.setattr("jflow.task.server.watched.log_file", lambda: ("", 0))
        assert main(["logs", server.target, "--timeout", "30"]) == 2
        said = capsys.readouterr().err
        assert "there is no log on this machine:" in said
        assert "/job:worker/task:0: it logs to a terminal or to another process; start it" in said
        other = tmp_path / "worker.log"
        other.write_text("of another machine\n")
        monkeypatch.setattr("jflow.task.server.watched.log_file", lambda: (str(other), 1))
        assert main(["logs", server.target, "--timeout", "30"]) == 2
        assert f"its log is {other} on the machine of 127.0.0.1:" in capsys.readouterr().err
    assert main(["logs", "--lines", "-1"]) == 2
    assert "--lines must be at least 0, got -1" in capsys.readouterr().err


def test_tasks_of_a_local_cluster_say_where_their_logs_are_and_a_stopped_one_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JFLOW_LOG", "info")
    monkeypatch.setenv("JFLOW_LOG_FORMAT", "json")
    with LocalCluster(ps=1, workers=1, logs=tmp_path) as cluster:
        target = cluster.target()
        (log,) = find_logs(target, [Task("ps", 0)], 30.0)
        assert log.path == tmp_path / "ps-0.log"
        assert main(["logs", target, "--timeout", "30"]) == 0
        shown = [line.partition(" ")[::2] for line in capsys.readouterr().out.splitlines()]
        events = [(task, json.loads(line)) for task, line in shown]
        started = [(task, told) for task, told in events if told.get("event") == "server_started"]
        assert sorted(task for task, _ in started) == ["/job:ps/task:0", "/job:worker/task:0"]
        assert all((told["task"], told["level"]) == (task, "INFO") for task, told in started)
        os.kill(cluster.pid("ps"), signal.SIGSTOP)

        def is_marked() -> bool:
            code = main(["logs", target, "--timeout", "1", "--json"])
            return code == 3 and "silent: no answer" in capsys.readouterr().out

        wait_until(is_marked, "the stopped task to be marked, and the other's log to be shown")
        os.kill(cluster.pid("ps"), signal.SIGCONT)


def test_a_file_that_several_tasks_log_to_is_shown_once_line_by_line_under_its_task(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of `jflow up > file 2>&1`."""
    out = tmp_path / "out"
    before = [_line("first", "ps"), "Traceback (most recent call last):"]
    last = _json("worker")
    out.write_text("\n".join(["grpc://127.0.0.1:1 is ready", *before, last, ""]))
    both = [f"/job:{job}/task:0" for job in ("ps", "worker")]
    monkeypatch.setattr(module, "find_logs", lambda _, tasks, __: _logs(out, tasks or both))
    assert main(["logs"]) == 0
    ps, worker = both
    expected = [(ps, "grpc://127.0.0.1:1 is ready"), *((ps, line) for line in before)]
    expected.append((worker, last))
    assert capfd.readouterr().out.splitlines() == [f"{task} {line}" for task, line in expected]
    assert main(["logs", "--json"]) == 0
    (tasks,) = json.loads(capfd.readouterr().out).values()
    assert [one["lines"] for one in tasks] == [
        [line for of, line in expected if of == task] for task in both
    ]
    assert main(["logs", worker]) == 0
    assert capfd.readouterr().out.splitlines() == ["grpc://127.0.0.1:1 is ready", last]


def _logs(path: Path, tasks: list[Task | str]) -> list[module.TaskLog]:
    return [module.TaskLog(str(task), path) for task in tasks]


def _line(said: str, job: str) -> str:
    record = logging.LogRecord("jflow.x", logging.WARNING, "", 0, f'{said} task=/job:a "', (), None)
    return LineFormatter(f"/job:{job}/task:0").format(record)


def _json(job: str) -> str:
    record = logging.LogRecord("jflow.x", logging.WARNING, "", 0, "said", (), None)
    return LineFormatter(f"/job:{job}/task:0", is_json=True).format(record)


def test_followed_logs_go_on_until_ctrl_c(of_up: Path) -> None:
    with announced(TARGETS, of_up):
        command = [sys.executable, "-m", "jflow", "logs", "--follow", "--lines", "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "/job:ps/task:0 line 49\n"
                assert process.stdout.readline() == "/job:worker/task:0 \\x1b[2Jforged\n"
                with (of_up / "worker-0.log").open("a") as file:
                    file.write("shed\n")
                assert process.stdout.readline() == "/job:worker/task:0 unfinished\n"
                process.send_signal(signal.SIGINT)
                assert process.wait() == 0
            finally:
                process.kill()


def test_no_cluster_is_an_error_that_says_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs"]) == 2
    assert "which cluster?" in capsys.readouterr().err
