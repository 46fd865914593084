"""The command `jflow`, as a user types it: what it says when it is told something wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import jflow as tf
from jflow.cli.main import main
from jflow.testing import start_servers


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in (
        "TF_CONFIG",
        "JFLOW_TOKEN",
        "JFLOW_TOKEN_FILE",
        "JFLOW_INSECURE",
        "JFLOW_TLS_DIR",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that the command ends with; its exit code says that it was used wrongly."""
    assert main(["server", *arguments]) == 2
    output = capsys.readouterr()
    assert not output.out
    (line,) = output.err.splitlines()
    assert line.startswith("jflow: ")
    return line.removeprefix("jflow: ")


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ("worker=a:1", "--cluster is not JSON (names and strings in double quotes"),
        ('{"ps": ["a:1"]', "at its end: line 1 column 15"),
        ('["a"]', "--cluster: a cluster is a dict of lists of addresses, such as {'worker': "),
        ('"a:1"', "--cluster: a cluster is a dict"),
        ('{"ps": "a:1"}', "--cluster: the tasks of job 'ps' are a list of addresses"),
        ('{"ps": ["host:port"]}', "--cluster: /job:ps/task:0: the port of the address"),
        ('{"ps": {"x": "a:1"}}', "--cluster: a task index of job 'ps' is a number from 0, got 'x'"),
        ('{"ps": ["a:1"], "worker": ["b:1"]}', "job_name must be given (--job"),
        ('{"ps": ["a:1", "b:1"]}', "task_index must be given (--index"),
        ('{"ps": ["192.0.2.7"]}', "/job:ps/task:0 cannot listen at '192.0.2.7'"),
        ("{}", "no cluster: give --cluster, or set TF_CONFIG"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_line(
    capsys: pytest.CaptureFixture[str], cluster: str, words: str
) -> None:
    assert words in refusal(capsys, "--cluster", cluster)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", "TF_CONFIG is not JSON"),
        ('{"clutser": {"ps": ["a:1"]}}', "TF_CONFIG has the unknown key 'clutser'; did you mean "),
        ('{"cluster": ["a"]}', 'TF_CONFIG["cluster"]: a cluster is a dict'),
        ('{"task": {"type": "ps"}}', "no cluster: give --cluster, or set TF_CONFIG"),
        (
            '{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 1}}',
            'TF_CONFIG["task"] says /job:ps/task:1, which is not in the cluster',
        ),
    ],
)
def test_a_tf_config_that_cannot_be_used_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, config: str, words: str
) -> None:
    monkeypatch.setenv("TF_CONFIG", config)
    assert words in refusal(capsys)


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("JFLOW_TOKEN", "short", "JFLOW_TOKEN has a token of 5 characters; at least 22"),
        ("JFLOW_TOKEN_FILE", "/no/such/file", "JFLOW_TOKEN_FILE names '/no/such/file', which "),
    ],
)
def test_a_token_that_cannot_be_used_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    words: str,
) -> None:
    monkeypatch.setenv(variable, value)
    assert words in refusal(capsys, "--cluster", '{"ps": ["127.0.0.1:0"]}')


def test_data_roots_that_do_not_exist_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = '{"ps": ["127.0.0.1:0"]}'
    assert "/no/such/folder" in refusal(
        capsys, "--cluster", cluster, "--data-root", "/no/such/folder"
    )


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        (["--cluster", '{"worker": {"3": "127.0.0.1:0"}}'], ""),
        (["--cluster", '{"ps": [], "worker": {"3": "127.0.0.1:0"}}', "--job", "worker"], ""),
        ([], '{"cluster": {"worker": {"3": "127.0.0.1:0"}}, "task": {"type": "worker"}}'),
    ],
)
def test_a_job_may_have_only_some_indices(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    config: str,
) -> None:
    def join(_: tf.train.Server) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("TF_CONFIG", config)
    monkeypatch.setattr(tf.train.Server, "join", join)

    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr("jflow.cli.server._exit_after", lambda *_: None)
    monkeypatch.setattr("jflow.cli.server._exit", end)  # which ends the process and its logging
    with pytest.raises(SystemExit) as ended:
        main(["server", *arguments])
    assert ended.value.code == 0
    ready, stopping = capsys.readouterr().out.splitlines()
    assert "/job:worker/task:3 at grpc://127.0.0.1:" in ready
    assert stopping == "stopping"


def test_a_picture_that_could_not_be_written_is_refused_before_the_demo_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--picture", "/no/such/folder/x.svg"]) == 2
    output = capsys.readouterr()
    assert output.err == "jflow: --picture: the directory '/no/such/folder' does not exist\n"
    assert not output.out


def test_a_port_in_use_is_not_a_fault_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    with tf.train.Server({"ps": ["127.0.0.1:0"]}) as server:
        cluster = json.dumps(server.cluster_spec.as_dict())
        assert main(["server", "--cluster", cluster]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("jflow: ")


def test_the_command_and_the_package_say_the_same_version(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out.split()[:2] == ["jflow", tf.__version__]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("up", "Starts a cluster on this machine"),
        ("ls pending", "What the steps that run wait for."),
        ("slurm render", "Prints the batch script of a cluster."),
    ],
)
def test_the_help_of_a_command_begins_with_what_it_does(
    command: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([*command.split(), "--help"])
    usage, said, *_ = capsys.readouterr().out.split("\n\n")
    assert usage.startswith(f"usage: jflow {command} ")
    assert said.startswith(words)


@pytest.mark.parametrize(
    "arguments", [["ls", "devices", "--json"], ["status"], ["slurm", "render", "x"]]
)
def test_output_that_is_not_read_to_its_end_is_no_traceback(
    arguments: list[str], tmp_path: Path
) -> None:
    """As in `jflow ls devices --json | head -1`; other programs are ended by SIGPIPE."""
    with ExitStack() as stack:
        (server,) = start_servers(stack.enter_context, {"worker": 1})
        address = server.target.partition("://")[2].partition("?")[0]
        tf_config = json.dumps({"cluster": {"worker": [address]}})
        reader, writer = os.pipe()
        os.close(reader)
        environment = {**os.environ, "TF_CONFIG": tf_config}
        command = [sys.executable, "-m", "jflow", *arguments]
        done = subprocess.run(
            command, stdout=writer, stderr=subprocess.PIPE, env=environment, check=False
        )
        os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "soon"])
def test_a_number_of_seconds_says_what_it_may_be(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["status", "--interval", text])
    expected = f"argument --interval: expected a number of seconds above 0, got {text!r}"
    assert expected in capsys.readouterr().err
