"""Python files that run in processes of their own, each forked from one that has imported jflow.

A new Python would import JAX and jflow again, which is most of what a short program takes.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from typing import IO

from jflow.launch.testing.processes import shared_zygote
from jflow.testing import ProgramProcess

Path = str | os.PathLike[str]


def script_process(
    file: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> ProgramProcess:
    """Starts a file as a program, for a test that talks to it.

    Args:
      file: the path of the file.
      arguments: those of the program.
      environment: environment variables beside those of this process.
    """
    return ProgramProcess(
        _command(file, os.getcwd(), arguments), environment, zygote=shared_zygote()
    )


def run_script(
    file: Path,
    *arguments: str,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a file as a program to its end; its exit code and what it printed.

    Args:
      file: the path of the file.
      arguments: those of the program.
      cwd: the folder that it runs in; that of this process if None.
      environment: environment variables beside those of this process.
    """
    command = _command(file, os.getcwd() if cwd is None else cwd, arguments)
    variables = os.environ | dict(environment or {})
    with tempfile.TemporaryFile() as errors:
        process = shared_zygote().start(command, variables, stderr=errors.fileno())
        try:
            process.stdin.close()
            with process.stdout:
                printed = process.stdout.read()
            code = process.wait()
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, code, printed.decode(), _text(errors))


def _command(file: Path, folder: Path, arguments: tuple[str, ...]) -> list[str]:
    return ["-m", "tests.programs.script", os.fspath(folder), os.fspath(file), *arguments]


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
