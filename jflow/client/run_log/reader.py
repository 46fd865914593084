"""`read_logs`: reads the logs of the programs of one run, and what their steps did."""

from __future__ import annotations

import math
import mmap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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
from jflow.errors import DataLossError, InvalidArgumentError, NotFoundError
from jflow.net.protocol import plan_from_bytes
from jflow.plan import Plan
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
        self.is_whole = isinstance(last, LogEnd)
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
        if value.dtype == string.name:
            strings, _ = read_strings(raw, math.prod(value.shape))
            return strings.reshape(value.shape)
        if value.dtype not in NUMBERS:
            raise InvalidArgumentError(f"the run log {self.path} has the dtype {value.dtype!r}")
        return raw.view(NUMBERS[value.dtype]).reshape(value.shape)


class RecordedStep:
    """A step that a program registered.

    Args:
      file: its log.
      record: what the log says of it.

    Attributes:
      title: the operations that it computes, for people.
      n_fetches: how many values it fetches.
    """

    def __init__(self, file: _File, record: LogStep) -> None:
        self._file, self._record = file, record
        self.title, self.n_fetches = record.title, record.n_fetches

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
      incarnations: those of its tasks.
      touched: the variables of its programs, by instruction.
      values: the results of its calls of the host, by instruction; functions that load them.
    """

    run: RecordedRun
    incarnations: dict[str, int] = field(default_factory=dict)
    touched: dict[InstructionKey, tuple[Touched, ...]] = field(default_factory=dict)
    values: dict[InstructionKey, tuple[_File, tuple[int, ...]]] = field(default_factory=dict)

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
      is_whole: whether no log was cut.
      problems: what the logs lack, as sentences.
    """

    attempts: list[RecordedAttempt]
    platforms: dict[str, ExecutionPlatform]
    is_whole: bool
    problems: list[str]


def read_logs(paths: Sequence[str]) -> RunLog:
    """Reads logs of programs that ran together.

    Raises:
      NotFoundError, InvalidArgumentError, DataLossError: if one of them cannot be read.
    """
    files = [_File(path) for path in paths]
    runs = {run.record.id: run for file in files for run in _runs(file)}
    problems = [
        f"{file.path} ends early: {end.reason}"
        for file in files
        for end in cast(list[LogEnd], file.of_kind[LogEnd])
        if end.reason
    ]
    is_whole = all(file.is_whole for file in files)
    attempts: dict[int, RecordedAttempt] = {}
    platforms: dict[str, ExecutionPlatform] = {}
    for (task, incarnation), journal in _journals(files, platforms, problems).items():
        for number in sorted(journal):
            file, devices, entry, values = journal[number]
            run = runs.get(entry.step - entry.step % N_ATTEMPTS)
            if run is None:
                continue
            attempt = attempts.setdefault(entry.step, RecordedAttempt(run))
            attempt.incarnations[task] = incarnation
            key = devices[entry.device], entry.instruction
            # What was noted last counts: earlier ones were given up.
            if entry.touched:
                attempt.touched[key] = tuple(entry.variables())
            else:
                attempt.values[key] = file, values
    ordered = sorted(attempts.items(), key=lambda item: (item[1].run.record.time, item[0]))
    return RunLog([attempt for _, attempt in ordered], platforms, is_whole, problems)


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
        n_missing = max(journal, default=-1) + 1 - len(journal)
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
