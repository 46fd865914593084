"""What the recorded steps of clients did on a task, in the order in which it was done.

The programs of a step that use variables are noted with the versions that they read and made: the
number of updates that a variable had had. So it is known what each update was computed from, in
whatever order asynchronous steps ran. What the host computed from anything but its arguments, such
as the element that came out of a queue, is noted by its value.

A step is recorded if its client has chosen its number, which is then at least `RECORDED`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, ClassVar, NamedTuple

from jflow.base.cluster import Task
from jflow.base.machine import this_platform
from jflow.base.packing import Limits, Meta, Record, Word
from jflow.base.values import Array, memory_bytes
from jflow.errors import InvalidArgumentError
from jflow.plan import Instruction, Plan

RECORDED = 1 << 63
"""The least number of a recorded step; the numbers that masters choose are lower."""

N_ATTEMPTS = 1 << 7
"""How many numbers a recorded step has, from the one that its client chose: a master takes another
one when it runs a step again that met an older one."""

N_IDS = N_ATTEMPTS << 32
"""How many numbers the steps of one session have, from a random multiple of `N_ATTEMPTS` on."""

MAX_BYTES = 64 << 20
"""What a task keeps for its clients; older entries go first."""

_ENTRY_BYTES, _VARIABLE_BYTES = 256, 160
"""The memory of an entry without arrays, and of each variable in it, about."""

_PART_BYTES = 1 << 20
"""What travels at once, by the memory that it takes here; encoded it is less."""

Touched = tuple[int, int, bool]
"""A variable that a program reads or writes: its index in the plan, the number of updates that it
had had (-1 if it had no value), and whether it is written."""


class JournalEntry(NamedTuple):
    """What an instruction of a step did.

    Attributes:
      step: the number of the step.
      plan: the plan.
      instruction: a program that uses variables, or a call of the host.
      touched: the variables of the program.
      values: the results of the call.
    """

    step: int
    plan: Plan
    instruction: Instruction
    touched: Sequence[Touched] = ()
    values: Sequence[Array] = ()


Index = Annotated[int, Meta(ge=0, lt=1 << 32)]


class PackedEntry(Record, frozen=True, array_like=True):
    """An entry as it travels.

    Attributes:
      step: the number of the step.
      device: the device of the plan, by its position among those of the part.
      instruction: the position of the instruction in the plan.
      touched: for each variable of a program its index in the plan, and a code of the rest of
        `Touched`: twice the number of updates, plus two, plus one if it is written.
      n_values: how many results a call has.
    """

    step: Word
    device: Index
    instruction: Index
    touched: tuple[Word, ...] = ()
    n_values: Index = 0

    def variables(self) -> Iterable[Touched]:
        """Returns the variables of the program."""
        numbers, codes = self.touched[::2], self.touched[1::2]
        return (
            (number, (code >> 1) - 1, bool(code & 1))
            for number, code in zip(numbers, codes, strict=True)
        )


class PackedEntries(Record, frozen=True):
    """Entries of one task.

    Attributes:
      devices: the names of the devices of their plans.
      entries: the entries.
    """

    what: ClassVar[str] = "entries of a journal"
    limits: ClassVar[Limits] = Limits(16 << 20, 16 << 20, 16 << 20)

    devices: tuple[str, ...]
    entries: tuple[PackedEntry, ...]


@dataclass(frozen=True)
class JournalPosition:
    """Up to where a client has read the journal of a task.

    Attributes:
      task: the task.
      incarnation: that of the server whose journal it is; 0 if none was read.
      position: the number of the next entry.
    """

    task: Task
    incarnation: int = 0
    position: int = 0


@dataclass(frozen=True)
class JournalPart:
    """A part of the journal of a task.

    Attributes:
      first: the number of the first entry; a higher one than was asked for if earlier entries were
        dropped.
      n_entries: how many there are.
      n_left: how many follow.
      packed: `PackedEntries`.
      values: the results of calls, in the order of the entries.
      platform: what computed them, a packed `ExecutionPlatform`.
    """

    first: int
    n_entries: int
    n_left: int
    packed: bytes
    values: tuple[Array, ...]
    platform: bytes


@dataclass(frozen=True)
class TaskJournal:
    """A part of the journal of a task, as its master passes it on.

    Attributes:
      task: the task.
      incarnation: that of its server.
      part: the entries.
    """

    task: Task
    incarnation: int
    part: JournalPart

    @property
    def end(self) -> JournalPosition:
        """The position after it."""
        part = self.part
        return JournalPosition(self.task, self.incarnation, part.first + part.n_entries)


class Journal:
    """The latest entries of a task.

    Args:
      max_bytes: how much memory they may take.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: deque[JournalEntry] = deque()
        self._first = 0
        self._n_bytes = 0

    def add(self, entry: JournalEntry) -> None:
        """Adds an entry; drops the oldest ones if there are too many."""
        self._entries.append(entry)
        self._n_bytes += _size_of(entry)
        while self._n_bytes > self._max_bytes and len(self._entries) > 1:
            self._n_bytes -= _size_of(self._entries.popleft())
            self._first += 1

    def read(self, position: int) -> tuple[int, list[JournalEntry], int]:
        """Reads from a position on.

        Returns:
          The number of the first entry, as many entries as travel at once, and how many are left.
        """
        start = max(position, self._first)
        found: list[JournalEntry] = []
        n_bytes = 0
        for entry in islice(self._entries, start - self._first, None):
            found.append(entry)
            n_bytes += _size_of(entry)
            if n_bytes > _PART_BYTES:
                break
        return start, found, self._first + len(self._entries) - start - len(found)


def recorded_ids(step_id: int) -> range:
    """Returns the numbers of a session whose first recorded step has this one.

    Raises:
      InvalidArgumentError: if the number cannot be that of a recorded step.
    """
    if not RECORDED <= step_id < 2 * RECORDED or step_id % N_ATTEMPTS:
        raise InvalidArgumentError(f"a recorded step cannot have the number {step_id:#x}")
    return range(step_id, step_id + N_IDS)


def packed(first: int, entries: Sequence[JournalEntry], n_left: int) -> JournalPart:
    """Returns entries of this process as they travel; for the arguments see `Journal.read`."""
    devices: dict[str, int] = {}
    # By identity, because a plan takes long to hash.
    places: dict[int, tuple[int, Mapping[int, int]]] = {}
    rows, values = [], list[Array]()
    for step, plan, instruction, touched, results in entries:
        place = places.get(id(plan))
        if place is None:
            positions = {id(one): i for i, one in enumerate(plan.instructions)}
            device = devices.setdefault(str(plan.device), len(devices))
            place = places[id(plan)] = device, positions
        codes: list[int] = []
        for index, n_updates, is_written in touched:
            codes += (index, 2 * n_updates + 2 + is_written)
        row = step, place[0], place[1][id(instruction)], tuple(codes), len(results)
        rows.append(PackedEntry(*row))
        values += results
    content = PackedEntries(tuple(devices), tuple(rows)).to_bytes()
    platform = this_platform().to_bytes()
    return JournalPart(first, len(entries), n_left, content, tuple(values), platform)


def _size_of(entry: JournalEntry) -> int:
    n_bytes = _ENTRY_BYTES + _VARIABLE_BYTES * len(entry.touched)
    return n_bytes + sum(map(memory_bytes, entry.values))
