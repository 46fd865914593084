"""Makes the variables of a model, or finds them, so that all of them come from one program.

On the first task of the cluster, and on each task with variables of a model, a *record* says that
all of them are made: a head with a digest, and a layout, which has the name, type and device of
each. It is written when all variables have values. So

* no record: the model was never whole, and its variables are made;
* every record, and every variable: it is whole;
* some records, and every variable: the program that made them stopped between two records, or a
  task without variables has lost its state; the missing records are written;
* some records, and not every variable: a task has lost its state, which is an error.

What exists stays where it is, wherever a later program requests it.

All writes are under a claim (`Connection.claim`), which fences off a program that makes the same
model: of two programs the later one makes all variables, and the other one finds them. If that
takes long, it makes them itself, each time later, as the other one may have died.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import msgspec
import numpy as np

from jflow.base.cluster import Device, DeviceSpec, Task
from jflow.base.deadline import Deadline
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

_FIRST_PATIENCE_S, _LAST_PATIENCE_S = 2.0, 120.0
_PAUSE_S = 0.05
_HEAD_BYTES = 40
"""SHA-256 of the layout, and its size as an u64; all 0 if there is none."""

_NOTHING: Any = np.zeros(_HEAD_BYTES, np.uint8)
_HERE = threading.Lock()
"""Held by the thread that makes a model on a connection to this process, which has no claims."""


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
          FailedPreconditionError: if some of them are lost.
          InvalidArgumentError: if there are other ones under the prefix.
          DeadlineExceededError: if another program makes them for longer than the timeout.
        """
        tasks = self._requested_tasks()
        if not self.owner.target:
            with _HERE:
                return self._under_claim(self.owner, tasks, make_anew)
        deadline = Deadline(self.owner.timeout)
        for patience in _patiences():
            found = None if make_anew else self._found(self.owner, tasks)
            if found is not None:
                return found
            try:
                with self.owner.another() as maker:
                    maker.claim(f"jflow.bind {self.refs[0].container}/{self.prefix}"[:256])
                    return self._under_claim(maker, tasks, make_anew)
            except FencedError:
                make_anew = False
            found = self._wait(patience, tasks, deadline)
            if found is not None:
                return found
        raise AssertionError("patience has no end")

    def _requested_tasks(self) -> list[Task]:
        """Returns the first task, and those on which this program requests variables."""
        of_each = {ref.spec: ref for ref in self.refs}
        requested = [*of_each.values()]
        look = self.owner.concrete(accessing(requested, _is_there), (), f"place {self.prefix}")
        placed = accessed_at(look, requested)
        return [*dict.fromkeys([self.owner.first_task(), *map(_task_of, placed)])]

    def _under_claim(
        self, maker: Connection, tasks: Sequence[Task], make_anew: bool
    ) -> list[VariableRef]:
        """Makes what is missing. A later claim of another program would fence this one off."""
        found = None if make_anew else self._found(maker, tasks)
        if found is not None:
            return found
        if make_anew:
            former = self._layout(maker, tasks) or ()
            heads = self._heads({*tasks, *_tasks_of(former)})
            self._write(maker, heads, [_NOTHING] * len(heads))
        placed = self._write(maker, self.refs, self.values)
        self._write_records(maker, [*map(_Entry.of, placed)], tasks)
        return placed

    def _wait(
        self, patience: float, tasks: Sequence[Task], deadline: Deadline
    ) -> list[VariableRef] | None:
        """Waits until another program has made them; None if that takes too long."""
        begun = time.monotonic()
        while time.monotonic() - begun < patience:
            if deadline.remaining() == 0:
                raise deadline.error(f"waiting for another program that makes {self.prefix!r}")
            found = self._found(self.owner, tasks)
            if found is not None:
                return found
            time.sleep(_PAUSE_S)
        return None

    # What is there ----------------------------------------------------------------------------

    def _found(self, owner: Connection, tasks: Sequence[Task]) -> list[VariableRef] | None:
        """Returns the variables if they are whole; None if they were never made."""
        layout = self._layout(owner, tasks)
        if layout is None:
            return None
        refs = self._matched(layout)
        placed, is_there = self._presence(owner, refs)
        if not all(is_there):
            raise self._lost([ref for ref, here in zip(placed, is_there, strict=True) if not here])
        every = [*dict.fromkeys([tasks[0], *_tasks_of(layout)])]
        if not all(head.any() for head in self._values(owner, self._heads(every))):
            self._write_records(owner, layout, every)
        return placed

    def _layout(self, owner: Connection, tasks: Sequence[Task]) -> _Layout | None:
        """Returns what the first record on some tasks says; None if there is none."""
        heads = self._values(owner, self._heads(tasks))
        for task, head in zip(tasks, heads, strict=True):
            if head.any():
                (data,) = self._values(owner, [self._layout_on(task, head)])
                if hashlib.sha256(data.tobytes()).digest() != head[:32].tobytes():
                    raise DataLossError(f"the record of {self.prefix!r} on {task} is damaged")
                return msgspec.json.decode(data.tobytes(), type=list[_Entry])
        return None

    def _write_records(self, owner: Connection, layout: _Layout, tasks: Sequence[Task]) -> None:
        data = np.frombuffer(msgspec.json.encode(layout), np.uint8)
        digest = hashlib.sha256(data.tobytes()).digest()
        head = np.frombuffer(digest + len(data).to_bytes(8, "little"), np.uint8)
        every = [*dict.fromkeys([*tasks[:1], *_tasks_of(layout)])]
        # A task writes both or none, as they are written by one program.
        records = [*self._heads(every), *(self._layout_on(task, head) for task in every)]
        self._write_at_once(owner, records, [head] * len(every) + [data] * len(every))

    def _heads(self, tasks: Iterable[Task]) -> list[VariableRef]:
        return [self._record(task, "head", _HEAD_BYTES) for task in tasks]

    def _layout_on(self, task: Task, head: Any) -> VariableRef:
        """Returns the layout that a head means; another one has another name and size."""
        size = int.from_bytes(head[32:].tobytes(), "little")
        return self._record(task, f"layout_{head[:8].tobytes().hex()}", size)

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
        """Sets variables; returns them with their actual devices."""
        placed = []
        for numbers in _batches(values):
            batch = [refs[i] for i in numbers], [values[i] for i in numbers]
            placed += self._write_at_once(owner, *batch)
        return placed

    def _write_at_once(
        self, owner: Connection, refs: Sequence[VariableRef], values: Sequence[Any]
    ) -> list[VariableRef]:
        """Sets variables in one step."""

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


def _task_of(ref: VariableRef) -> Task:
    return Device.parse(str(ref.spec)).task


def _tasks_of(layout: _Layout) -> list[Task]:
    return [Device.parse(entry.device).task for entry in layout]


def _patiences() -> Iterator[float]:
    yield from (min(_FIRST_PATIENCE_S * 2**n, _LAST_PATIENCE_S) for n in itertools.count())
