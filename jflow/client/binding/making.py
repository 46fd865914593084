"""Makes the variables of a model, or finds them, so that all of them come from one program.

On the first task of the cluster, and on each task with variables of a model, a *record* says what
there is: a head with a digest and a generation, and a layout, which has the name, type and device
of each variable. A program that makes a model marks the heads with the first variables that it
writes, counts in the mark as it goes on, and writes the records when all variables have values. So

* a mark: the model is being made, or what made it has stopped; after a while it is made anew;
* every record, and every variable: it is whole;
* some records, and every variable: a task that has no variables has lost its state, or the program
  stopped between two records; the missing records are written;
* some records, and not every variable: a task has lost its state, which is an error;
* no record and no mark: it is made if none of the variables exists, and found if all of them do, as
  after a restore.

What exists stays where it is, wherever a later program requests it.

All writes are under a claim (`Connection.claim`), which fences off a program that makes the same
model. Of two programs that begin at the same time, the later one makes all variables, and the other
one waits and finds them. One that sees a mark waits as long as it changes, and then claims.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import msgspec
import numpy as np

from jflow.base.cluster import Device, DeviceSpec, Task
from jflow.base.deadline import Deadline
from jflow.base.versions import prepared
from jflow.client.functions import Connection
from jflow.client.functions.accesses import accessed_at, accessing
from jflow.compiler.graph import VariableRef
from jflow.compiler.graph.primitives import assign_p, is_initialized_p, value_or_p
from jflow.errors import (
    DataLossError,
    FailedPreconditionError,
    FencedError,
    InvalidArgumentError,
)

RECORD = "bound"
"""The name of records, below the prefix of the model."""

STEP_BYTES = 256 << 20
"""How many bytes of values one step writes, beyond which another one follows."""

PATIENCE_S = 5.0
"""How long a mark may stay the same before another program makes the model; each time twice."""

_PAUSE_S = 0.05
_N_SAMPLES = 64
"""How many variables tell whether there may be some without a record."""

_N_CLAIMS = 64
"""How many names of claims there are; makers of two models with one name only try again."""

_HERE = threading.Lock()
"""Held by the thread that makes a model on a connection to this process, which has no claims."""


class _Head(NamedTuple):
    """The head of a record.

    Attributes:
      digest: SHA-256 of the layout; `_MARK` while the model is made; zeros if there is nothing.
      size: bytes of the layout; while the model is made, a count that grows.
      generation: differs each time that the model is made.
    """

    digest: bytes
    size: int
    generation: int

    @property
    def is_mark(self) -> bool:
        return self.digest == _MARK

    @property
    def is_record(self) -> bool:
        return self.digest not in (_MARK, _NO_DIGEST)

    def array(self) -> Any:
        """Returns the head as the value of its variable: u8[_HEAD_BYTES]."""
        return np.frombuffer(self.digest + _NUMBERS.pack(self.size, self.generation), np.uint8)

    @classmethod
    def of(cls, value: Any) -> _Head:
        data = np.asarray(value).tobytes()
        return cls(data[:32], *_NUMBERS.unpack(data[32:]))


_NUMBERS = struct.Struct("<QQ")
_HEAD_BYTES = 32 + _NUMBERS.size
_NO_DIGEST, _MARK = bytes(32), b"\xff" * 32


class _Entry(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A variable in a layout."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sharding: str
    device: str

    @classmethod
    def of(cls, ref: VariableRef) -> _Entry:
        return cls(ref.name, ref.dtype.name, ref.shape, ref.sharding, str(ref.spec))

    @property
    def type(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


_Layout = Sequence[_Entry]


@dataclass(frozen=True)
class ModelVariables:
    """The variables of a model as one program requests them.

    Attributes:
      owner: the connection.
      prefix: of their names.
      refs: the variables.
      values: their first values.
    """

    owner: Connection
    prefix: str
    refs: Sequence[VariableRef]
    values: Sequence[Any]

    def make_or_find(self, make_anew: bool) -> list[VariableRef]:
        """Makes the variables, unless they are there; returns them with their actual devices.

        Args:
          make_anew: whether to write them also if they are there.

        Raises:
          DataLossError: if a record is damaged.
          FailedPreconditionError: if some of them are lost.
          InvalidArgumentError: if there are other ones under the prefix.
          DeadlineExceededError: if another program makes them for longer than the timeout.
        """
        tasks = self._requested_tasks()
        heads = self._read_heads(self.owner, tasks)
        # Whole models of these generations do not count.
        former = frozenset(head.generation for head in heads) if make_anew else frozenset[int]()
        if make_anew:
            # That they have another type is an error before anything is lost.
            self._presence(self.owner, self.refs)
        if not self.owner.target:
            with _HERE:
                return self._claimed(self.owner, tasks, former)
        deadline, patience = Deadline(self.owner.timeout), PATIENCE_S
        while True:
            found = self._found(self.owner, tasks, heads, former)
            heads = [] if found is None else self._heads_of_all(self.owner, tasks, found)
            if found is not None and all(head.is_record for head in heads):
                return found
            # Nothing is written without a claim, a missing record neither.
            lacks_record = found is not None and not any(head.is_mark for head in heads)
            if lacks_record or not self._is_made_elsewhere(tasks, former, patience, deadline):
                try:
                    with self.owner.another() as maker:
                        maker.claim(self._claim_name())
                        return self._claimed(maker, tasks, former)
                except FencedError:
                    self._is_made_elsewhere(tasks, former, patience, deadline, is_begun=True)
                patience *= 2
            heads = self._read_heads(self.owner, tasks)

    def _claim_name(self) -> str:
        number = int.from_bytes(hashlib.sha256(self.prefix.encode()).digest()[:4]) % _N_CLAIMS
        return f"jflow.bind {number}"

    def _requested_tasks(self) -> list[Task]:
        """Returns the first task, and those on which this program requests variables."""
        requested = [*{ref.spec: ref for ref in self.refs}.values()]
        look = self.owner.concrete(accessing(requested, _is_there), (), f"place {self.prefix}")
        placed = accessed_at(look, requested)
        return [*dict.fromkeys([self.owner.first_task(), *map(_task_of, placed)])]

    def _is_made_elsewhere(
        self,
        tasks: Sequence[Task],
        former: Collection[int],
        patience: float,
        deadline: Deadline,
        *,
        is_begun: bool = False,
    ) -> bool:
        """Waits while another program makes the model; returns whether it has made it.

        Args:
          tasks: those of the records that it looks at.
          former: generations of models that do not count.
          patience: how long to wait for a change, in seconds.
          deadline: of the call.
          is_begun: whether another program is known to make it, even if there is no mark yet.
        """
        last, since = None, time.monotonic()
        while True:
            heads = self._read_heads(self.owner, tasks)
            if any(head.is_record and head.generation not in former for head in heads):
                return True
            if not is_begun and not any(head.is_mark for head in heads):
                return False
            if deadline.remaining() == 0:
                raise deadline.error(f"waiting for another program that makes {self.prefix!r}")
            if heads != last:
                last, since = heads, time.monotonic()
            elif time.monotonic() - since > patience:
                return False
            time.sleep(_PAUSE_S)

    # Under a claim ----------------------------------------------------------------------------

    def _claimed(
        self, maker: Connection, tasks: Sequence[Task], former: Collection[int]
    ) -> list[VariableRef]:
        """Makes what is missing. A later claim of another program would fence this one off.

        Args:
          maker: the connection with the claim.
          tasks: those of the records that it looks at.
          former: generations of models that do not count.
        """
        heads = self._read_heads(maker, tasks)
        found = self._found(maker, tasks, heads, former, is_claimed=True)
        if found is not None:
            self._repair(maker, tasks, found)
            return found
        generation = _new_generation()
        marked = [*dict.fromkeys([*tasks, *self._tasks_of_layout(maker, tasks, heads)])]
        placed: list[VariableRef] = []
        for count, numbers in enumerate(_batches(self.values)):
            mark = _Head(_MARK, count, generation).array()
            at = self._heads(marked if not count else marked[:1])
            batch = [*(self.refs[i] for i in numbers), *at]
            values = [*(self.values[i] for i in numbers), *[mark] * len(at)]
            placed += self._write(maker, batch, values)[: len(numbers)]
        self._write_records(maker, placed, tasks, generation)
        return placed

    def _tasks_of_layout(
        self, owner: Connection, tasks: Sequence[Task], heads: Sequence[_Head]
    ) -> list[Task]:
        """Returns the tasks of a model that is replaced; none if its record is damaged."""
        try:
            layout = self._layout(owner, tasks, heads) or ()
            return [Device.parse(entry.device).task for entry in layout]
        except DataLossError:
            return []

    def _repair(
        self, maker: Connection, tasks: Sequence[Task], refs: Sequence[VariableRef]
    ) -> None:
        """Writes the records of a whole model where one is missing."""
        heads = self._heads_of_all(maker, tasks, refs)
        if not all(head.is_record for head in heads):
            known = [head.generation for head in heads if head.is_record]
            self._write_records(maker, refs, tasks, next(iter(known), _new_generation()))

    def _heads_of_all(
        self, owner: Connection, tasks: Sequence[Task], refs: Sequence[VariableRef]
    ) -> list[_Head]:
        """Returns the heads on all tasks that have one, if the variables are whole."""
        return self._read_heads(owner, _recorded_on(tasks, refs))

    def _write_records(
        self,
        owner: Connection,
        refs: Sequence[VariableRef],
        tasks: Sequence[Task],
        generation: int,
    ) -> None:
        data = np.frombuffer(msgspec.json.encode([*map(_Entry.of, refs)]), np.uint8)
        head = _Head(hashlib.sha256(data.tobytes()).digest(), len(data), generation)
        every = _recorded_on(tasks, refs)
        # A task writes both or none, as they are written by one program.
        records = [*self._heads(every), *(self._layout_on(task, head) for task in every)]
        self._write(owner, records, [head.array()] * len(every) + [data] * len(every))

    # What is there ----------------------------------------------------------------------------

    def _found(
        self,
        owner: Connection,
        tasks: Sequence[Task],
        heads: Sequence[_Head],
        former: Collection[int],
        *,
        is_claimed: bool = False,
    ) -> list[VariableRef] | None:
        """Returns the variables if they are whole; None if they have to be made, or are made.

        Args:
          owner: the connection to look with.
          tasks, heads: the records.
          former: generations of models that do not count.
          is_claimed: whether no other program makes them, so that they may exist without records.

        Raises:
          FailedPreconditionError: if some exist, and others do not.
        """
        if any(head.is_mark for head in heads):
            return None
        if former and all(head.generation in former for head in heads):
            return None
        layout = self._layout(owner, tasks, heads)
        if layout is None and not (is_claimed and self._may_exist(owner)):
            return None
        placed, is_there = self._presence(owner, self._matched(layout) if layout else self.refs)
        if not all(is_there):
            lost = [ref for ref, here in zip(placed, is_there, strict=True) if not here]
            raise self._lost(lost) if layout else self._foreign(lost)
        return placed

    def _may_exist(self, owner: Connection) -> bool:
        """Whether one of some variables exists, as after a restore, which writes no records."""
        step = max(1, len(self.refs) // _N_SAMPLES)
        _, is_there = self._presence(owner, [*self.refs[::step], self.refs[-1]])
        return any(is_there)

    def _layout(
        self, owner: Connection, tasks: Sequence[Task], heads: Sequence[_Head]
    ) -> _Layout | None:
        """Returns what the first record on some tasks says; None if there is none."""
        for task, head in zip(tasks, heads, strict=True):
            if head.is_record:
                (data,) = self._values(owner, [self._layout_on(task, head)])
                if hashlib.sha256(data.tobytes()).digest() != head.digest:
                    raise DataLossError(
                        f"the record of {self.prefix!r} on {task} is damaged; bind with "
                        "make_anew=True, and restore a checkpoint if there is one"
                    )
                return msgspec.json.decode(data.tobytes(), type=prepared(list[_Entry]))
        return None

    def _read_heads(self, owner: Connection, tasks: Sequence[Task]) -> list[_Head]:
        return [*map(_Head.of, self._values(owner, self._heads(tasks)))]

    def _heads(self, tasks: Iterable[Task]) -> list[VariableRef]:
        return [self._record(task, "head", _HEAD_BYTES) for task in tasks]

    def _layout_on(self, task: Task, head: _Head) -> VariableRef:
        """Returns the layout that a head means; another one has another name and size."""
        return self._record(task, f"layout_{head.digest[:8].hex()}", head.size)

    def _record(self, task: Task, part: str, size: int) -> VariableRef:
        return replace(
            self.refs[0],
            name=f"{self.prefix}/{RECORD}/{part}",
            shape=(size,),
            dtype=np.dtype(np.uint8),
            spec=DeviceSpec.parse(str(Device(task, "CPU", 0))),
            sharding="",
        )

    def _matched(self, layout: _Layout) -> list[VariableRef]:
        """Returns the variables where they are.

        Raises:
          InvalidArgumentError: if the layout has other ones.
        """
        entries = {entry.name: entry for entry in layout}
        refs = []
        for ref in self.refs:
            wanted, entry = _Entry.of(ref), entries.pop(ref.name, None)
            if entry is None:
                raise self._differs(f"it has no variable {ref.name!r}")
            if entry.type != wanted.type:
                raise self._differs(f"{ref.name!r} is {entry.type} there, and {wanted.type} here")
            if wanted.sharding not in ("", entry.sharding):
                raise self._differs(
                    f"{ref.name!r} is sharded {entry.sharding or 'as its first value'} there, and "
                    f"{wanted.sharding} here"
                )
            spec = DeviceSpec.parse(entry.device)
            refs.append(replace(ref, spec=spec, sharding=entry.sharding))
        if entries:
            raise self._differs(f"it has a variable {min(entries)!r}, and this one has none")
        return refs

    def _differs(self, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"another model is bound as {self.prefix!r}: {what}; use another prefix or container"
        )

    def _foreign(self, missing: Sequence[VariableRef]) -> FailedPreconditionError:
        n = len(self.refs) - len(missing)
        return FailedPreconditionError(
            f"{n} of the {len(self.refs)} variables of {self.prefix!r} exist, and were not made by "
            f"jflow.bind, and {missing[0].name!r} does not; use another prefix, or make_anew=True"
        )

    def _lost(self, lost: Sequence[VariableRef]) -> FailedPreconditionError:
        return FailedPreconditionError(
            f"{len(lost)} of {len(self.refs)} variables of {self.prefix!r} are lost, such as "
            f"{lost[0].name!r} on {lost[0].spec}, whose task was probably started again; bind with "
            "make_anew=True, and restore a checkpoint if there is one"
        )

    # Steps ------------------------------------------------------------------------------------

    def _values(self, owner: Connection, refs: Sequence[VariableRef]) -> list[Any]:
        """Returns the values of records, zeros for those that are not there."""

        def value(ref: VariableRef) -> Any:
            return value_or_p.bind(np.zeros(ref.shape, np.uint8), variable=ref)

        values, _ = self._run(owner, value, refs)
        return [*map(np.asarray, values)]

    def _presence(
        self, owner: Connection, refs: Sequence[VariableRef]
    ) -> tuple[list[VariableRef], list[bool]]:
        """Returns variables with their actual devices, and whether they have values."""
        flags, placed = self._run(owner, _is_there, refs)
        return placed, [*map(bool, flags)]

    def _write(
        self, owner: Connection, refs: Sequence[VariableRef], values: Sequence[Any]
    ) -> list[VariableRef]:
        """Sets variables in one step; returns them with their actual devices."""

        def write(ref: VariableRef, value: Any) -> None:
            assign_p.bind(jax.numpy.asarray(value), variable=ref)

        return self._run(owner, write, refs, values)[1]

    def _run(
        self,
        owner: Connection,
        access: Callable[..., Any],
        refs: Sequence[VariableRef],
        args: Sequence[Any] = (),
    ) -> tuple[Sequence[Any], list[VariableRef]]:
        """Accesses variables in one step; returns the results, and where they are."""
        title = f"{'make' if args else 'look for'} {self.prefix}"
        concrete = owner.concrete(accessing(refs, access), args, title)
        return concrete(args, Deadline(owner.timeout)), accessed_at(concrete, refs)


def _new_generation() -> int:
    return secrets.randbits(63) | 1


def _is_there(ref: VariableRef) -> Any:
    return is_initialized_p.bind(variable=ref)


def _batches(values: Sequence[Any]) -> Iterator[list[int]]:
    """Yields the positions of values in groups of at most `STEP_BYTES`, or of one value."""
    batch: list[int] = []
    n_bytes = 0
    for number, value in enumerate(values):
        size = getattr(value, "nbytes", 0)
        if batch and n_bytes + size > STEP_BYTES:
            yield batch
            batch, n_bytes = [], 0
        batch.append(number)
        n_bytes += size
    yield batch


def _recorded_on(tasks: Sequence[Task], refs: Sequence[VariableRef]) -> list[Task]:
    """Returns the tasks that have records: the first one, and those of the variables."""
    return [*dict.fromkeys([tasks[0], *map(_task_of, refs)])]


def _task_of(ref: VariableRef) -> Task:
    return Device.parse(str(ref.spec)).task
