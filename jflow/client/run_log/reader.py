"""`read_logs`: reads the logs of the programs of one run, and what their steps did."""

from __future__ import annotations

import math
import mmap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, cast

import numpy as np

from jflow.base.cluster import Device
from jflow.base.machine import ExecutionPlatform
from jflow.base.packing import Record
from jflow.base.values import NUMBERS, Array, read_strings, string
from jflow.client.run_log.frames import decoded
from jflow.client.run_log.records import (
    VERSION,
    LogCall,
    LogEnd,
    LogHeader,
    LogJournal,
    LogResults,
    LogRun,
    LogStep,
    LogValue,
)
from jflow.client.run_log.writer import data_path
from jflow.errors import DataLossError, InvalidArgumentError, NotFoundError, OpError
from jflow.net.protocol import plan_from_bytes
from jflow.plan import Plan, Run
from jflow.state.journal import N_ATTEMPTS, PackedEntries, PackedEntry, Touched
from jflow.state.records.crc32c import checksum

InstructionKey = tuple[Device, int]
"""An instruction: the device of its plan, and its position there."""


class _File:
    """One log.

    Args:
      path: the file.

    Raises:
      NotFoundError: if there is none.
      InvalidArgumentError: if it is not a log, or of another version.
      DataLossError: if it was changed.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.of_kind: dict[type[Record], list[Any]] = defaultdict(list)
        last: Record | None = None
        for last in decoded(_contents(path), path):
            self.of_kind[type(last)].append(last)
        self.end = last if isinstance(last, LogEnd) else None
        headers: list[LogHeader] = self.of_kind[LogHeader]
        if not headers:
            raise InvalidArgumentError(f"the run log {path} was cut before it had begun")
        self.header = headers[0]
        if self.header.version != VERSION:
            raise InvalidArgumentError(
                f"the run log {path} has the format {self.header.version}, and this version of "
                f"jflow reads {VERSION}; replay it with jflow {self.header.jflow}"
            )
        self.values: list[LogValue] = self.of_kind[LogValue]
        self.steps = [RecordedStep(self, record) for record in self.of_kind[LogStep]]

    @cached_property
    def _data(self) -> bytes | mmap.mmap:
        if not any(value.data is None and value.n_bytes for value in self.values):
            return b""
        path = data_path(self.path)
        try:
            with open(path, "rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise NotFoundError(f"the values of the run log are not in {path}: {error}") from None

    def load(self, number: int) -> Array:
        """Returns a value. Raises DataLossError if it was changed, or is not there."""
        if number >= len(self.values):
            raise DataLossError(f"the run log {self.path} has no value {number}")
        value = self.values[number]
        start, end = value.offset, value.offset + value.n_bytes
        data = self._data[start:end] if value.data is None else value.data
        if len(data) != value.n_bytes or checksum(data) != value.checksum:
            raise DataLossError(
                f"value {number} of the run log {self.path}, in bytes {start} to {end} of "
                f"{data_path(self.path)}, is not the one that was written"
            )
        raw = np.frombuffer(data, np.uint8)
        with well_formed([self.path]):
            if value.dtype == string.name:
                strings, _ = read_strings(raw, math.prod(value.shape))
                return strings.reshape(value.shape)
            return raw.view(NUMBERS[value.dtype]).reshape(value.shape)


class RecordedStep:
    """A step that a program registered.

    Args:
      file: its log.
      record: what the log says of it.

    Attributes:
      title: the operations that it computes, for people.
    """

    def __init__(self, file: _File, record: LogStep) -> None:
        self._file, self._record = file, record
        self.title = record.title

    @cached_property
    def plans(self) -> Sequence[Plan]:
        """Its plans, one for each device."""
        return [*map(plan_from_bytes, self._record.plans)]

    @cached_property
    def by_device(self) -> Mapping[Device, Plan]:
        """Its plans by their devices."""
        return {plan.device: plan for plan in self.plans}

    def artifacts(self) -> dict[str, Array]:
        """Returns the programs and constants of its plans, by digest."""
        return {digest: self._file.load(n) for digest, n in self._record.artifacts.items()}


@dataclass(eq=False)
class RecordedRun:
    """A run of a step, as the program began it.

    Attributes:
      file: its log.
      step: the step.
      record: what the log says of it.
      called: what it called.
      returned: what it returned; None if that is not known.
    """

    file: _File
    step: RecordedStep
    record: LogRun
    called: list[LogCall] = field(default_factory=list)
    returned: LogResults | None = None

    def feeds(self) -> list[Array]:
        """Returns the fed values."""
        return [*map(self.file.load, self.record.feeds)]

    def results_of_calls(self) -> dict[int, list[list[Array]]]:
        """Returns the results of the functions that it called, by their numbers."""
        results: dict[int, list[list[Array]]] = defaultdict(list)
        for call in self.called:
            results[call.function].append([*map(self.file.load, call.results)])
        return results

    def fetched(self) -> list[Array]:
        """Returns the fetched values, if the log has them."""
        return [] if self.returned is None else [*map(self.file.load, self.returned.values)]


@dataclass(eq=False)
class RecordedAttempt:
    """What a run did on the tasks; a run that met an older step was attempted again.

    Attributes:
      run: the run.
      lives: for each of its tasks, which incarnation of the server it was, counted from 0 on.
      touched: the variables of its programs, by instruction.
      values: the results of its calls of the host, by instruction: a log, and their numbers there.
    """

    run: RecordedRun
    lives: dict[str, int] = field(default_factory=dict)
    touched: dict[InstructionKey, tuple[Touched, ...]] = field(default_factory=dict)
    values: dict[InstructionKey, tuple[_File, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether all programs that use variables were noted."""
        return all(
            (plan.device, position) in self.touched
            for plan in self.run.step.plans
            for position in _noted_positions(plan)
        )

    def check(self, key: InstructionKey) -> None:
        """Raises LookupError if its step has no such instruction."""
        device, position = key
        self.run.step.by_device[device].instructions[position]

    def results_at(self, key: InstructionKey) -> list[Array] | None:
        """Returns the results of a call of the host; None if it did not end."""
        found = self.values.get(key)
        return None if found is None else [*map(found[0].load, found[1])]


@dataclass
class RunLog:
    """The logs of the programs of one run.

    Attributes:
      attempts: what the runs of steps did, in the order in which the programs began them.
      platforms: what computed the run, by the names of tasks.
      problems: what the logs lack, as sentences.
    """

    attempts: list[RecordedAttempt]
    platforms: dict[str, ExecutionPlatform]
    problems: list[str]


def read_logs(paths: Sequence[str]) -> RunLog:
    """Reads logs of programs that ran together.

    Raises:
      NotFoundError, InvalidArgumentError, DataLossError: if one of them cannot be read.
    """
    files = [_File(path) for path in paths]
    runs = {run.record.id: run for file in files for run in _runs(file)}
    platforms: dict[str, ExecutionPlatform] = {}
    problems = [problem for file in files for problem in _problems_of(file)]
    attempts: dict[int, RecordedAttempt] = {}
    with well_formed(paths):
        journals = _journals(files, platforms, problems)
        lives = _lives_of(files)
        for (task, incarnation), journal in journals.items():
            for number in sorted(journal):
                file, devices, entry, values = journal[number]
                run = runs.get(entry.step - entry.step % N_ATTEMPTS)
                if run is None:
                    continue
                attempt = attempts.setdefault(entry.step, RecordedAttempt(run))
                attempt.lives[task] = lives[task, incarnation]
                key = devices[entry.device], entry.instruction
                attempt.check(key)
                # What was noted last counts: earlier ones were given up.
                if entry.touched:
                    attempt.touched[key] = tuple(entry.variables())
                else:
                    attempt.values[key] = file, values
    ordered = sorted(attempts.items(), key=lambda item: (item[1].run.record.time, item[0]))
    found = [attempt for _, attempt in ordered]
    problems += _lost(runs.values(), found)
    return RunLog(found, platforms, problems)


@contextmanager
def well_formed(paths: Sequence[str]) -> Iterator[None]:
    """Raises DataLossError in place of the errors of Python that malformed records cause."""
    try:
        yield
    except (LookupError, ValueError) as error:
        if isinstance(error, OpError):
            raise
        raise DataLossError(f"the run logs {', '.join(paths)} are malformed: {error!r}") from error


def _problems_of(file: _File) -> Iterator[str]:
    """Yields what a log lacks, by its end."""
    if file.end is None:
        yield f"{file.path} was cut: its program was killed, or still runs"
        return
    if file.end.reason:
        yield f"{file.path} ends early: {file.end.reason}"
    if file.end.unread:
        yield (
            f"{file.path} may lack the last entries of {', '.join(file.end.unread)}, which did not "
            "answer at the end"
        )


def _lives_of(files: Iterable[_File]) -> dict[tuple[str, int], int]:
    """Returns the position of each incarnation of a server among those of its task.

    Each log has them in order, and may have begun after some of them.
    """
    after: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for file in files:
        last: dict[str, tuple[str, int]] = {}
        for noted in cast(list[LogJournal], file.of_kind[LogJournal]):
            key = noted.task, noted.incarnation
            before = after.setdefault(key, set())
            if last.get(noted.task, key) != key:
                before.add(last[noted.task])
            last[noted.task] = key
    lives: dict[tuple[str, int], int] = {}
    n_lives: Counter[str] = Counter()
    for task, incarnation in TopologicalSorter(after).static_order():
        lives[task, incarnation] = n_lives[task]
        n_lives[task] += 1
    return lives


def _lost(runs: Iterable[RecordedRun], attempts: Iterable[RecordedAttempt]) -> Iterator[str]:
    """Yields the steps that returned, although not all that they did was noted."""
    whole = {attempt.run for attempt in attempts if attempt.is_whole}
    lost = [
        run.step.title
        for run in runs
        if run.returned is not None
        and run.record.attempt == 1  # what is sent again may return what was kept
        and run not in whole
        and any(_noted_positions(plan) for plan in run.step.plans)
    ]
    if lost:
        yield (
            f"what {len(lost)} steps did is not in the logs, such as {lost[0]!r}: a task did not "
            "answer any more, or has dropped it"
        )


def _noted_positions(plan: Plan) -> list[int]:
    """Returns the positions of the programs of a plan that use variables, which a task notes."""
    return [
        i
        for i, one in enumerate(plan.instructions)
        if isinstance(one, Run) and (one.reads or one.writes or one.before or one.defaults)
    ]


def _runs(file: _File) -> Iterator[RecordedRun]:
    called: dict[int, list[LogCall]] = defaultdict(list)
    for call in file.of_kind[LogCall]:
        called[call.run].append(call)
    returned: dict[int, LogResults] = {one.run: one for one in file.of_kind[LogResults]}
    for record in cast(list[LogRun], file.of_kind[LogRun]):
        if record.step >= len(file.steps):
            raise DataLossError(f"the run log {file.path} has no step {record.step}")
        step = file.steps[record.step]
        yield RecordedRun(file, step, record, called[record.id], returned.get(record.id))


_Entry = tuple[_File, Sequence[Device], PackedEntry, tuple[int, ...]]


def _journals(
    files: Sequence[_File], platforms: dict[str, ExecutionPlatform], problems: list[str]
) -> dict[tuple[str, int], dict[int, _Entry]]:
    """Returns the entries of each task by their numbers; each program may have read the same."""
    journals: dict[tuple[str, int], dict[int, _Entry]] = defaultdict(dict)
    for file in files:
        for noted in cast(list[LogJournal], file.of_kind[LogJournal]):
            journal = journals[noted.task, noted.incarnation]
            platforms[noted.task] = noted.platform
            content, n_read = PackedEntries.from_bytes(noted.packed), 0
            devices = [*map(Device.parse, content.devices)]
            for number, entry in enumerate(content.entries, noted.first):
                values = noted.values[n_read : n_read + entry.n_values]
                n_read += entry.n_values
                journal[number] = file, devices, entry, values
    for (task, _), journal in journals.items():
        n_missing = max(journal) + 1 - min(journal) - len(journal) if journal else 0
        if n_missing:
            problems.append(
                f"{n_missing} entries of the journal of {task} were dropped before they were read"
            )
    return journals


def _contents(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise NotFoundError(f"the run log {path} cannot be read: {error.strerror}") from None
