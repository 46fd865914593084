"""Zygotes: processes that fork into programs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from jflow.base.failpoints import VARIABLE
from jflow.launch.testing.processes import shared_zygote
from jflow.testing import ProgramProcess, Zygote, no_leaks, wait_until

ECHO = ("-m", "tests.programs.echo")


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with no_leaks(), Zygote(["tests.programs.echo"]) as zygote:
        yield zygote


def test_a_program_gets_its_arguments_its_input_and_its_environment(zygote: Zygote) -> None:
    for name in ("one", "two"):
        with ProgramProcess([*ECHO, name], {"JFLOW_ECHO": name * 2}, zygote=zygote) as program:
            program.write_line("go")
            assert program.read_line() == f"{name} {name * 2} go"
            assert program.wait() == 0
            assert program.read_line() == ""


def test_the_exit_code_says_how_a_program_ended(
    zygote: Zygote, capfd: pytest.CaptureFixture[str]
) -> None:
    for text, code in (("exit 3", 3), ("raise", 1)):
        with ProgramProcess([*ECHO, "x"], zygote=zygote) as program:
            assert program.exit_code is None
            program.write_line(text)
            assert program.wait() == code
    assert "ZeroDivisionError" in capfd.readouterr().err
    with ProgramProcess([*ECHO, "x"], zygote=zygote) as program:
        program.kill()
        assert program.exit_code == -9


def test_what_jax_imports_when_it_first_compiles_is_imported_before_programs_begin() -> None:
    with (
        Zygote(["tests.programs.compiles"]) as zygote,
        ProgramProcess(["-m", "tests.programs.compiles"], zygote=zygote) as program,
    ):
        imported = json.loads(program.read_line())
    assert [name for name in imported if name.startswith(("scipy", "numpy"))] == []


def test_a_program_has_its_own_process_and_session(zygote: Zygote) -> None:
    with (
        ProgramProcess([*ECHO, "a"], zygote=zygote) as one,
        ProgramProcess([*ECHO, "b"], zygote=zygote) as other,
    ):
        assert len({one.pid, other.pid, os.getpid()}) == 3
        wait_until(lambda: os.getsid(one.pid) == one.pid, "a session of its own")
        one.kill()
        other.write_line("go")
        assert other.read_line().endswith("go"), "it does not share pipes with the other one"


def test_a_program_that_was_paused_ends_with_the_killed_process_that_started_it() -> None:
    with ProgramProcess(["-m", "tests.programs.orphans"]) as parent:
        pid = int(parent.read_line())
        parent.kill()
        wait_until(lambda: not psutil.pid_exists(pid), "the end of a stopped program")


def test_what_is_not_a_module_is_refused(zygote: Zygote) -> None:
    with pytest.raises(ValueError, match="a module and its arguments"):
        ProgramProcess(["program.py"], zygote=zygote)


def test_failpoints_of_the_test_are_not_those_of_programs(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with ProgramProcess([*ECHO, "x"], zygote=zygote) as program:
        program.write_line("failpoints")
        assert program.read_line() == "0 failpoints are on"


@pytest.mark.long
def test_a_zygote_that_cannot_import_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with Zygote(["no_such_module_anywhere"]) as broken:
        with pytest.raises(ConnectionError, match="its output says why"):
            broken.start(ECHO, {})
        assert "no_such_module_anywhere" in capfd.readouterr().err


def test_clusters_share_a_zygote_if_libraries_would_read_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jflow.launch.testing.processes.CHILD", ECHO[1])  # which imports little
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    first = shared_zygote()
    monkeypatch.setenv("JFLOW_LOG", "error")  # read when it is used
    assert shared_zygote() is first
    with no_leaks(), ProgramProcess([*ECHO, "x"], zygote=first) as program:
        program.write_line("go")
        assert program.read_line() == "x None go"
    monkeypatch.setenv("JAX_ENABLE_X64", "0")
    assert shared_zygote() is not first
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: first.has_ended)
    with pytest.raises(ConnectionError):
        ProgramProcess([*ECHO, "x"], zygote=first)
    assert shared_zygote() is not first
