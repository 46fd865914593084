"""`jflow logs`: what the tasks of a cluster have logged, from their files on this machine."""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jflow.base.cluster import Target, Task, read_tf_config
from jflow.base.text import printable
from jflow.cli.status import PARTIAL, connected
from jflow.cli.targets import add_names, add_options, parse_tasks, split_target
from jflow.errors import NotFoundError

if TYPE_CHECKING:
    from jflow.cli.watcher import Seen
    from jflow.net.wire.running_ups import RunningUp

_N_LINES = 20
_BLOCK_BYTES = 64 << 10
_POLL_S = 0.25
_OF_TASK = re.compile(
    r'\S+ [A-Z]+ (?:message|event)=(?:"(?:[^"\\]|\\.)*"|\S+) logger=\S+ task=(/job:\S+)'
)
_ADVICE = (
    "start it with `jflow up --logs DIR`, with LocalCluster(logs=DIR), or with its standard error "
    "in a file"
)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
    logs = commands.add_parser("logs", help="what the tasks of a cluster on this machine log")
    add_names(logs, "TASK", "tasks, as /job:JOB/task:I (default: all)")
    logs.add_argument(
        "--lines",
        type=int,
        default=_N_LINES,
        metavar="N",
        help="how many of the last lines of each task (default: %(default)s)",
    )
    logs.add_argument("--follow", action="store_true", help="also what comes, until Ctrl-C")
    logs.add_argument(
        "--json", action="store_true", help="for programs; with --follow line by line"
    )
    add_options(logs, has_target=False)
    logs.set_defaults(run=_logs)


class TaskLog(NamedTuple):
    """The location of a task's log.

    Attributes:
      task: its name.
      path: the file, on this machine; None if there is none.
      reason: why there is none.
    """

    task: str
    path: Path | None
    reason: str = ""


def _logs(options: argparse.Namespace) -> int:
    if options.lines < 0:
        raise ValueError(f"--lines must be at least 0, got {options.lines}")
    target, tasks = split_target(options.names)
    logs = find_logs(target, parse_tasks(tasks), options.timeout)
    if all(log.path is None for log in logs):
        reasons = "\n".join(f"{log.task}: {log.reason}" for log in logs)
        raise NotFoundError(f"there is no log on this machine:\n{reasons}")
    files = [*_files_of(logs, options.lines)]
    if options.follow:
        _follow(files, logs, is_json=options.json)
    elif options.json:
        read = [pair for file in files for pair in file.read()]
        tasks_json = [
            {
                "name": log.task,
                "path": None if log.path is None else str(log.path),
                "reason": log.reason,
                "lines": [line for task, line in read if task == log.task],
            }
            for log in logs
        ]
        print(json.dumps({"tasks": tasks_json}, indent=2))
    else:
        for line in [*_reasons(logs), *_text(files, logs)]:
            print(line)
    return PARTIAL if any(log.path is None for log in logs) else 0


def _files_of(logs: Sequence[TaskLog], n_lines: int) -> Iterator[LogFile]:
    """Yields the files of logs, each once, although several tasks may log to it."""
    tasks: dict[Path, list[str]] = {}
    for log in logs:
        if log.path is not None:
            tasks.setdefault(log.path, []).append(log.task)
    for path, own in tasks.items():
        yield LogFile(LogTail(path, n_lines * len(own)), own)


def _reasons(logs: Sequence[TaskLog]) -> Iterator[str]:
    """Returns why tasks without a log have none."""
    for log in logs:
        if log.path is None:
            yield printable(f"{log.task}: {log.reason}")


def _text(files: Sequence[LogFile], logs: Sequence[TaskLog]) -> Iterator[str]:
    """Yields the lines for people, with the name of their task if there are several."""
    for file in files:
        for task, line in file.read():
            yield printable(f"{task} {line}" if len(logs) > 1 else line)


def _follow(files: Sequence[LogFile], logs: Sequence[TaskLog], *, is_json: bool) -> None:
    """Prints what there is and what comes, until Ctrl-C."""
    with suppress(KeyboardInterrupt):
        if not is_json:
            for reason in _reasons(logs):
                print(reason)
        while True:
            if is_json:
                lines = [
                    json.dumps({"name": task, "line": line})
                    for file in files
                    for task, line in file.read()
                ]
            else:
                lines = [*_text(files, logs)]
            for line in lines:
                print(line)
            sys.stdout.flush()
            time.sleep(_POLL_S)


def find_logs(target: str | None, tasks: Sequence[Task], seconds: float) -> list[TaskLog]:
    """Returns the locations of the logs of some tasks, or of all.

    Those of a `jflow up` are known by its directory, whether its tasks answer or not; any other
    task says where its log is.

    Args:
      target: what the user gave.
      tasks: the tasks.
      seconds: how long each has to answer.

    Raises:
      InvalidArgumentError, ValueError: if there is no such task, and as `candidates`.
      UnavailableError: if no server answers.
    """
    if target is None and not read_tf_config().cluster:
        from jflow.net.wire.running_ups import running_ups  # noqa: PLC0415 - it imports JAX

        ups = running_ups()
        if len(ups) == 1 and ups[0].logs:
            return _of_up(ups[0], tasks)
    with connected(target, seconds) as watcher:
        return [_of_task(seen) for seen in watcher.inspect((), tasks)]


def _of_up(up: RunningUp, tasks: Sequence[Task]) -> list[TaskLog]:
    from jflow.launch.cluster import log_name  # noqa: PLC0415 - it starts processes

    known = [task for task in (Target.parse(one).task for one in up.targets) if task is not None]
    for task in tasks:
        if task not in known:
            raise ValueError(f"the cluster has no {task}; it has {', '.join(map(str, known))}")
    logs = []
    for task in tasks or known:
        path = Path(up.logs) / log_name(task)
        there = path.is_file()
        logs.append(TaskLog(str(task), path if there else None, "" if there else f"no {path}"))
    return logs


def _of_task(seen: Seen) -> TaskLog:
    """Returns the log of a task, from the task's own status."""
    task, status = str(seen.report.task), seen.status
    if status is None:
        return TaskLog(task, None, f"is {seen.report.state.value}: {seen.report.reason}")
    if not status.log:
        return TaskLog(task, None, f"it logs to a terminal or to another process; {_ADVICE}")
    path = Path(status.log)
    try:
        file_status = path.stat()
        is_here = stat.S_ISREG(file_status.st_mode) and file_status.st_ino == status.log_inode
    except OSError:
        is_here = False
    if is_here:
        return TaskLog(task, path)
    return TaskLog(task, None, f"its log is {path} on the machine of {seen.report.address}")


class LogFile:
    """A log file of one task, or of several that share a terminal.

    Args:
      tail: its end.
      tasks: the names of tasks whose lines are wanted.
    """

    def __init__(self, tail: LogTail, tasks: Sequence[str]) -> None:
        self._tail = tail
        self._tasks = tasks
        self._last = tasks[0]

    def read(self) -> Iterator[tuple[str, str]]:
        """Each line that has come, with its task; lines of tasks that are not wanted are left out.

        A line that names no task, as those of a traceback, is of the task of the line before.
        """
        for line in self._tail.read():
            self._last = _named(line) or self._last
            if self._last in self._tasks:
                yield self._last, line


def _named(line: str) -> str:
    """The task that a line of a log names, as `LineFormatter` writes it; "" if it names none."""
    if (match := _OF_TASK.match(line)) is not None:
        return match[1]
    try:
        content = json.loads(line) if line.startswith("{") else {}
    except ValueError:
        return ""
    return str(content.get("task", ""))


class LogTail:
    """The end of a file that grows, line by line.

    Args:
      path: the file. If it is replaced or shortened, it is read from its beginning.
      n_lines: how many of its last lines are read first.
    """

    def __init__(self, path: Path, n_lines: int) -> None:
        self._path = path
        self._n_first: int | None = n_lines
        self._position = 0
        self._inode = 0

    def read(self) -> list[str]:
        """Returns the whole lines that have come since the last call; at first the last ones."""
        try:
            file = self._path.open("rb")
        except OSError:
            return []
        with file:
            status = os.fstat(file.fileno())
            if self._n_first is not None:
                self._position = _start_of_last(file.fileno(), status.st_size, self._n_first)
                self._n_first = None
            elif status.st_ino != self._inode or status.st_size < self._position:
                self._position = 0
            self._inode = status.st_ino
            file.seek(self._position)
            whole, end, _ = file.read(status.st_size - self._position).rpartition(b"\n")
            self._position += len(whole) + len(end)
        return whole.decode(errors="replace").split("\n") if end else []


def _start_of_last(file: int, size: int, n_lines: int) -> int:
    """Returns where the last lines of a file begin, without what follows its last end of a line."""
    position, n_left = size, n_lines + 1
    while position > 0:
        n_bytes = min(_BLOCK_BYTES, position)
        position -= n_bytes
        block = os.pread(file, n_bytes, position)
        ends = block.count(b"\n")
        if ends < n_left:
            n_left -= ends
            continue
        at = len(block)
        for _ in range(n_left):
            at = block.rindex(b"\n", 0, at)
        return position + at + 1
    return 0
