"""The state of readers: a work item and the position in it, kept between steps and sessions.

Kernels read in a critical section, because reading may have to wait for a work item from a queue.
They enter it with `AcquireReader` and leave it with `ReleaseReader`.

A read takes place outside the lock of the cell, because it may wait for a disk. Only the step in
the critical section uses the open file of the work item; everything else changes under the lock. A
restore does not wait for that step: it replaces the work item, and what the step then reports of
the former one (`advance`, `finish`) has no effect. So its read counts as done before the restore.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from jflow.base.packing import Limits
from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.state.records import Records
from jflow.state.resources.snapshot import PlainSnapshot, inconsistent
from jflow.state.resources.spec import Spec
from jflow.state.resources.wait_queue import QueuedAttempt, QueuedResource


class ReaderSpec(Spec, frozen=True):
    """The definition of a reader: its kind and the options of that kind.

    Attributes:
      kind: the kind of records, such as "TextLineReader".
      options: keyword arguments for opening each work item.
    """

    what = "reader"

    kind: str
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def facts(self) -> Iterator[tuple[str, Any]]:
        yield "kind", self.kind
        yield "options", self.options

    def check_same(self, found: ReaderSpec, name: str) -> None:
        if self != found:
            raise InvalidArgumentError(
                f"Shared reader {name!r} has a different definition. Expected {self.kind} with "
                f"{self.options}, found {found.kind} with {found.options}; use another name or "
                "container, or reset the container"
            )


Offset = int | tuple[int, ...] | None
"""The position in a work item, in the units of its kind; None at its beginning."""


class ReaderSnapshot(PlainSnapshot, frozen=True):
    """The saved state of a reader: its work item, position and counters.

    Records that a step is reading at the moment count as not read. After a restore the next step
    that reads opens the file of the work item.

    Attributes:
      spec: the definition of the reader.
      work: the current work item; None between two of them.
      position: how far it has been read.
      n_records: the number of records read.
      n_work_units: the number of work items read to their end.
    """

    what = "snapshot of a reader"
    limits: ClassVar[Limits] = Limits(1 << 28, 1 << 28)

    spec: ReaderSpec
    work: bytes | None
    position: Offset
    n_records: int
    n_work_units: int


_ACQUIRES, _RELEASES = range(2)
_RESTORABLE = ("IdentityReader", "WholeFileReader")

Open = Callable[[bytes, Any], Records]
"""A function that opens a work item at a position; None is its beginning."""


class WorkItem:
    """A work item that is being read.

    Args:
      name: the work item, such as the name of a file.
      position: how far it has been read.

    Attributes:
      records: reads it, once it is open; only the step in the critical section may use it.
    """

    __slots__ = ("name", "position", "records")

    def __init__(self, name: bytes, position: Any = None) -> None:
        self.name = name
        self.position = position
        self.records: Records | None = None

    def close(self) -> None:
        """Closes the file, if it is open."""
        if self.records is not None:
            self.records.close()


class ReaderState(QueuedResource[ReaderSnapshot]):
    """Reads the records of a sequence of work items.

    Args:
      spec: its definition.
      name: its name in messages.
      open_: opens a work item.

    Attributes:
      acquired_by: the attempt that entered the critical section; None if it is free.
      work: the current work item; None between two of them.
      n_records: the number of records read.
      n_work_units: the number of work items read to their end.
    """

    spec: ReaderSpec
    saved_as = ReaderSnapshot

    def __init__(self, spec: ReaderSpec, name: str, open_: Open) -> None:
        super().__init__(spec, name, AcquireReader, ReleaseReader, n_wait_queues=2)
        self.acquired_by: AcquireReader | None = None
        self.work: WorkItem | None = None
        self.n_records = 0
        self.n_work_units = 0
        self._open = open_
        self._in_use: WorkItem | None = None

    def __str__(self) -> str:
        return f"{self.spec.kind} {self.name!r}"

    # In the critical section, without the lock ------------------------------------------------

    def read(self, item: WorkItem, count: int) -> tuple[list[bytes], list[bytes]]:
        """Returns the keys and values of up to `count` records of a work item; none at its end.

        The state of the reader does not change.

        Raises:
          OpError: if it cannot be read.
        """
        if item.records is None:
            item.records = self._open(item.name, item.position)
        return item.records.read_up_to(count)

    def parsed(self, state: bytes) -> tuple[WorkItem | None, int, int]:
        """Parses a serialized state into the arguments of `resume`.

        Raises:
          InvalidArgumentError: if it is malformed.
          OpError: if the work item cannot be opened.
          UnimplementedError: as `state`.
        """
        self._check_restorable()
        try:
            kind, work, position, n_records, n_work_units = json.loads(state)
            if kind != self.spec.kind:
                raise ValueError(f"it is of {kind!r}")
            if not (_is_count(n_records) and _is_count(n_work_units)):
                raise ValueError("its counts are not integers of 0 or more")
            name = None if work is None else bytes.fromhex(work)
        except (ValueError, TypeError) as error:
            raise InvalidArgumentError(
                f"cannot restore {self}: the given state is not valid: {error}"
            ) from None
        if name is None:
            return None, n_records, n_work_units
        item = WorkItem(name, position)
        item.records = self._open(name, position)
        return item, n_records, n_work_units

    # Under the lock ---------------------------------------------------------------------------

    def use(self) -> WorkItem | None:
        """Returns the current work item and marks it as in use, until `advance` or `finish`."""
        self._in_use = self.work
        return self.work

    def begin_item(self, name: bytes) -> bool:
        """Makes a work item the current one; returns False if there is one already."""
        if self.work is not None:
            return False
        self.work = WorkItem(name)
        return True

    def advance(self, item: WorkItem, n_records: int) -> None:
        """Advances the position in a work item; zero records mean that its end was reached."""
        if not n_records or item is not self.work:
            self.finish(item)
            return
        assert item.records is not None
        self._in_use = None
        item.position = item.records.position
        self.n_records += n_records

    def finish(self, item: WorkItem) -> None:
        """Closes a work item that was read to its end or could not be read."""
        item.close()
        self._in_use = None
        if item is self.work:
            self.work = None
            # A work item that could not be opened is not counted.
            self.n_work_units += item.records is not None

    def reset(self) -> None:
        """Discards the work item and resets the counts."""
        self.resume(None, 0, 0)

    def state(self) -> bytes:
        """Serializes the position, for `parsed`.

        Raises:
          UnimplementedError: if readers of its kind cannot be serialized, as in TensorFlow.
        """
        self._check_restorable()
        work = None if self.work is None else self.work.name.hex()
        position = None if self.work is None else self.work.position
        return json.dumps(
            [self.spec.kind, work, position, self.n_records, self.n_work_units]
        ).encode()

    def resume(self, item: WorkItem | None, n_records: int, n_work_units: int) -> None:
        """Replaces the work item and the counts."""
        self.clear()
        self.work = item
        self.n_records, self.n_work_units = n_records, n_work_units

    def clear(self) -> None:
        item, self.work = self.work, None
        # The step that is reading a file closes it when it is done.
        if item is not None and item is not self._in_use:
            item.close()

    def save(self) -> ReaderSnapshot:
        item = self.work
        name, position = (None, None) if item is None else (item.name, _plain(item.position))
        return ReaderSnapshot(self.spec, name, position, self.n_records, self.n_work_units)

    def load(self, snapshot: ReaderSnapshot) -> None:
        if not (_is_count(snapshot.n_records) and _is_count(snapshot.n_work_units)):
            raise inconsistent(self, f"{snapshot.n_records} records, {snapshot.n_work_units} items")
        item = None if snapshot.work is None else WorkItem(snapshot.work, snapshot.position)
        self.resume(item, snapshot.n_records, snapshot.n_work_units)

    def _check_restorable(self) -> None:
        if self.spec.kind not in _RESTORABLE:
            raise UnimplementedError(
                f"serializing the state of {self} is not supported; it is for "
                f"{' and '.join(_RESTORABLE)}"
            )


def _plain(position: Any) -> Offset:
    """Converts a position to an immutable value."""
    return tuple(position) if isinstance(position, list) else position


def _is_count(value: object) -> bool:
    """Whether a value is an integer from 0 to 2**63 - 1."""
    return type(value) is int and 0 <= value < 1 << 63


class AcquireReader(QueuedAttempt[ReaderState]):
    """Enters the critical section; its value is the reader. `ReleaseReader` must follow."""

    __slots__ = ()
    wait_queue = _ACQUIRES

    def advance(self, state: ReaderState) -> bool:
        if state.acquired_by is None:
            state.acquired_by = self
            self.succeed((state,))
        return self.is_complete

    def goal(self, state: ReaderState) -> str:
        return f"for {state}, which another step is reading"


class ReleaseReader(QueuedAttempt[ReaderState]):
    """Leaves the critical section; does nothing if it was never entered.

    Args:
      acquired: the attempt that entered it, or was cancelled.
    """

    __slots__ = ("_acquired",)
    wait_queue = _RELEASES

    def __init__(self, acquired: AcquireReader) -> None:
        super().__init__()
        self._acquired = acquired

    def advance(self, state: ReaderState) -> bool:
        if state.acquired_by is self._acquired:
            state.acquired_by = None
        self.succeed()
        return True
