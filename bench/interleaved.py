"""Runs a case on an older library and on this tree's, in processes that take turns.

There are three: two with the older library, whose ratio shows what the machine and chance in a
process cause, and one with this tree's. Only one of them computes at a time. Each is started, or
continued, until it pauses in `bench.timing.alternate` or ends, then the next one; at a pause each
call is timed in all of them, turn after turn.

A process prints a line of JSON at a pause, `{"turns": [names of its calls]}`, and reads lines: a
name, which it answers with the seconds of the call, or nothing, and then it goes on. Other lines
that it prints are figures that it has taken alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

SHOWN = 4000
"""How many characters of a failed process's messages an error shows."""
STOP_S = 10.0
"""How long a process that is not needed any more has to end."""


@dataclass(frozen=True)
class Schedule:
    """How many turns the calls of one pause have: the first `least`, then more while there is time.

    Attributes:
      least, most: bounds of their number.
      spent_s: how long there are more than `least`.
    """

    least: int
    most: int = 30
    spent_s: float = 4.0

    def numbers(self) -> Iterator[int]:
        """A number for each turn."""
        begun = time.monotonic()
        for number in range(self.most):
            if number >= self.least and time.monotonic() - begun >= self.spent_s:
                return
            yield number


class CaseError(Exception):
    """A process of a case failed, printed something else, or printed nothing for too long.

    Attributes:
      process: which one.
      reason: why, in a line.
    """

    def __init__(self, process: CaseProcess, reason: str, messages: str = "") -> None:
        super().__init__(f"{process.name}: {reason}\n{messages[-SHOWN:]}".rstrip())
        self.process = process
        self.reason = reason


class CaseProcess:
    """A case in a process that pauses and times calls on request; ends with its context.

    Args:
      name: what errors call it.
      command: what to run.
      folder: where it runs, and where it imports `bench` and `jflow` from.
      environment: variables beside those of this process.
      limit_s: how long it may print nothing.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        limit_s: float = 900.0,
    ) -> None:
        self.name = name
        self.told: dict[str, float] = {}
        """Figures that it has told so far."""
        self._command = list(command)
        self._folder = folder
        self._environment = {
            **os.environ,
            **(environment or {}),
            "BENCH_TURNS": "1",
            "PYTHONDONTWRITEBYTECODE": "",  # else what is imported first is compiled again
            "PYTHONPATH": str(folder),
        }
        self._limit_s = limit_s
        self._is_overdue = False
        self._process: subprocess.Popen[str] | None = None
        self._messages = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115

    def __repr__(self) -> str:
        return f"CaseProcess({self.name!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._end(self._process)
        self._messages.close()

    def advance(self) -> list[str] | None:
        """Starts or continues it until it pauses; names of the calls it can time, None at its end.

        Raises:
          CaseError: if it fails, or takes too long.
        """
        if self._process is None:
            self._process = self._started()
        else:
            self._write("")
        while line := self._line():
            found = self._parsed(line, dict)
            if "turns" in found:
                return list(found["turns"])
            self.told |= found
        return None

    def seconds(self, call: str) -> float:
        """Time of a call that it has named at its pause.

        Raises:
          CaseError: if it fails, or takes too long.
        """
        self._write(call)
        return float(self._parsed(self._line(), float))

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
            start_new_session=True,  # so that what it starts can be ended with it
        )

    def _write(self, line: str) -> None:
        pipe = self._process.stdin
        with suppress(BrokenPipeError):  # it has ended; what is read next says so
            pipe.write(line + "\n")
            pipe.flush()

    def _line(self) -> str:
        """The next line that it prints, "" once it has ended well."""
        limit = threading.Timer(self._limit_s, self._end_overdue)
        limit.start()
        try:
            line = self._process.stdout.readline()
            status = None if line else self._process.wait()
        finally:
            limit.cancel()
        if self._is_overdue:
            raise self._error(f"printed nothing for {self._limit_s:g} s")
        if status:
            raise self._error(f"ended with status {status}")
        return line

    def _parsed(self, line: str, kind: type) -> Any:
        with suppress(json.JSONDecodeError):
            found = json.loads(line)
            if isinstance(found, kind):
                return found
        expected = "figures in JSON" if kind is dict else "seconds"
        raise self._error(f"expected {expected} on its output, got {line!r}")

    def _error(self, reason: str) -> CaseError:
        self._messages.seek(0)
        messages = self._messages.read().rstrip()
        last = messages.rsplit("\n", 1)[-1]
        return CaseError(self, f"{reason}: {last}" if last else reason, messages)

    def _end_overdue(self) -> None:
        self._is_overdue = True
        self._kill()

    def _end(self, process: subprocess.Popen[str]) -> None:
        """At a pause it reads that there is nothing more to do, and removes what it has made."""
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._kill()
            process.wait()
        process.stdout.close()

    def _kill(self) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def compare(
    processes: Sequence[CaseProcess], figures: Container[str], schedule: Schedule
) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Figures of a case and, of each turn, their values in each of the processes.

    Figures that the case does not take in turns come last, once.

    Args:
      processes: of one case, not started yet.
      figures: which are wanted.
      schedule: how many turns the others have.

    Raises:
      CaseError: if a process fails; what comes before it holds.
    """
    interleaved: set[str] = set()
    while (names := _advance(processes)) is not None:
        wanted = [name for name in names if name in figures]
        interleaved.update(wanted)
        for number in schedule.numbers() if wanted else ():
            first = number % len(processes)  # what comes first or last may be slower
            order = [*processes[first:], *processes[:first]]
            for name in wanted:
                times = {process: process.seconds(name) for process in order}
                yield name, tuple(times[process] for process in processes)
    for figure in processes[0].told:
        told = [process.told[figure] for process in processes if figure in process.told]
        if figure in figures and figure not in interleaved and len(told) == len(processes):
            yield figure, tuple(told)


def _advance(processes: Sequence[CaseProcess]) -> list[str] | None:
    """The calls of the next pause, which is the same for all; None at the end of all."""
    first = processes[0].advance()
    for process in processes[1:]:
        if (calls := process.advance()) != first:
            paused = "ends" if calls is None else f"pauses at {calls}"
            where = "at its end" if first is None else f"at {first}"
            raise CaseError(process, f"{paused} while {processes[0].name} is {where}")
    return first
