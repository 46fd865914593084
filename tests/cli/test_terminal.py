"""The command in a terminal: `jflow top` with keys, completion, and what is misspelt."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jflow.cli.main import main
from jflow.cli.screen import keys_of
from jflow.cli.top import COLUMNS, TopView, rows_text
from jflow.testing import start_servers

ROWS = [
    {
        "name": f"/job:worker/task:{i}",
        "state": "up",
        "cpu_percent": cpu,
        "memory_bytes": 1 << (20 + i),
        "steps_per_s": None,
        "n_running": 3 - i,
        "n_sessions": 0,
    }
    for i, cpu in enumerate([1.0, 50.0, 7.0])
]
SILENT = dict.fromkeys(ROWS[0]) | {"name": "/job:ps/task:0", "state": "silent"}


# What keys do -------------------------------------------------------------------------------------


def shown(view: TopView) -> list[str]:
    return [row["name"][-6:] for row in view.chosen([SILENT, *ROWS])]


def pressed(*keys: str) -> TopView:
    view = TopView()
    for key in keys:
        view.press(key)
    return view


def test_the_busiest_are_on_top_and_the_unknown_below() -> None:
    assert shown(TopView()) == ["task:1", "task:2", "task:0", "task:0"]
    assert TopView().chosen([SILENT, *ROWS])[-1] is SILENT


def test_keys_sort_by_any_column() -> None:
    assert shown(pressed("right"))[:3] == ["task:2", "task:1", "task:0"]  # by memory
    assert shown(pressed("r"))[:3] == ["task:0", "task:2", "task:1"]
    assert shown(pressed("6"))[:3] == ["task:0", "task:1", "task:2"]  # by running steps
    assert pressed("left", "left", "left").column == len(COLUMNS) - 1
    assert pressed("9").column == TopView().column


def test_a_filter_is_typed() -> None:
    assert shown(pressed("/", *"SILENT")) == ["task:0"]
    assert shown(pressed("/", *"task:x", "backspace", "1", "enter")) == ["task:1"]
    assert len(shown(pressed("/", *"none", "escape"))) == 4
    assert not pressed("/", "q").is_over
    assert pressed("/", "enter", "q").is_over
    assert pressed("escape").is_over


def test_a_terminal_may_send_several_keys_at_once() -> None:
    assert keys_of("\x1b[C\x1b[Dq") == ["right", "left", "q"]
    assert keys_of("\x1bq\x1b[5~é\r") == ["escape", "q", "", "é", "enter"]
    assert not pressed("²").is_over


def test_plain_text_has_a_dash_for_what_is_not_known() -> None:
    head, silent, *_ = rows_text([SILENT, *ROWS]).splitlines()
    assert head.split() == ["TASK", "STATE", "CPU", "%", "MEMORY", "STEPS/S", "RUNNING", "SESSIONS"]
    assert silent.split() == ["/job:ps/task:0", "silent", *"-----"]


# In a terminal ------------------------------------------------------------------------------------


class Terminal:
    """A program in a terminal of 100 by 30 characters."""

    def __init__(self, *arguments: str) -> None:
        self.own, self.its = pty.openpty()
        fcntl.ioctl(self.its, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jflow", *arguments],
            stdin=self.its,
            stdout=self.its,
            stderr=self.its,
            # Test processes have these, and they count more than the size of the terminal.
            env={name: os.environ[name] for name in os.environ if name not in ("COLUMNS", "LINES")}
            | {"TERM": "xterm-256color"},
            start_new_session=True,
        )

    def wait_for(self, pattern: str) -> str:
        """Returns what is printed from now on until a pattern occurs."""
        text, limit = "", time.monotonic() + 60
        while not re.search(pattern, text, re.DOTALL):
            assert time.monotonic() < limit, text
            if select.select([self.own], [], [], 0.1)[0]:
                text += os.read(self.own, 65536).decode(errors="replace")
        return text

    def type(self, keys: str) -> None:
        os.write(self.own, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.own)
        os.close(self.its)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 1, "worker": 2})
        opened = Terminal("top", servers[0].target, "--interval", "0.1")
        stack.callback(opened.close)
        yield opened


def test_top_is_a_screen_that_takes_keys_and_leaves_the_terminal_as_it_was(
    terminal: Terminal,
) -> None:
    before = termios.tcgetattr(terminal.its)
    terminal.wait_for(r"q quit.*CPU % ▼.*/job:ps/task:0")
    terminal.type("\x1b[C")
    terminal.wait_for(r"MEMORY ▼")
    terminal.type("/")
    terminal.type("worker")
    terminal.wait_for(r"only rows with: worker")
    terminal.type("\r")
    terminal.wait_for(r"only rows with 'worker'")
    screen = terminal.wait_for(r"only rows with 'worker'.*only rows with 'worker'")
    assert "/job:worker/task:1" in screen
    assert "/job:ps/task:0" not in screen
    terminal.type("q")
    assert terminal.process.wait(30) == 0
    assert termios.tcgetattr(terminal.its) == before


def test_top_ends_at_ctrl_c(terminal: Terminal) -> None:
    terminal.wait_for("q quit")
    terminal.process.send_signal(2)
    assert terminal.process.wait(30) == 0


def test_top_leaves_the_terminal_as_it_was_at_sigterm(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.its)
    terminal.wait_for("q quit")
    terminal.process.terminate()
    assert terminal.process.wait(30) == 128 + 15
    assert termios.tcgetattr(terminal.its) == before


def test_top_shows_that_no_server_answers(terminal: Terminal) -> None:
    terminal.wait_for("q quit")
    stopped = Terminal("top", "grpc://127.0.0.1:1", "--interval", "0.1")
    try:
        stopped.wait_for("127.0.0.1:1")
        assert stopped.process.wait(30) == 1
    finally:
        stopped.close()


# Completion ---------------------------------------------------------------------------------------


def completed(line: str, folder: Path) -> list[str]:
    """How a command line may go on, as a shell would ask."""
    answer = folder / "answer"
    subprocess.run(
        [sys.executable, "-m", "jflow"],
        env=os.environ
        | {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        },
        check=True,
    )
    return sorted(word.strip() for word in answer.read_text().splitlines())


def test_commands_nouns_and_options_are_completed(tmp_path: Path) -> None:
    assert completed("jflow sta", tmp_path) == ["stack", "status"]
    assert completed("jflow ls q", tmp_path) == ["queues"]
    assert completed("jflow top --i", tmp_path) == ["--interval"]
    assert completed("jflow completion ", tmp_path)[-3:] == ["bash", "fish", "zsh"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_ARGCOMPLETE" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_completion_says_what_it_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jflow.cli.completion.find_spec", lambda name: None)
    assert main(["completion", "bash"]) == 1
    assert "pip install 'jflow[cli]'" in capsys.readouterr().err


# What is misspelt ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("staus", "did you mean 'status'?"),
        ("ls variable", "did you mean 'variables'?"),
        ("ls queues --jsno", "did you mean '--json'?"),
        ("top --conut=3", "did you mean '--count'?"),
        ("k8s redner", "did you mean 'render'?"),
    ],
)
def test_a_misspelt_word_is_advised_on(
    capsys: pytest.CaptureFixture[str], line: str, advice: str
) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main(line.split())
    assert exit_code.value.code == 2
    assert advice in capsys.readouterr().err


@pytest.mark.parametrize("line", ["xyzzy", "ls --xyzzy queues", ""])
def test_a_word_like_no_other_is_not(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main(line.split())
    assert exit_code.value.code == 2
    assert "did you mean" not in capsys.readouterr().err
