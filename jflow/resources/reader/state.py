"""The state of readers: a work item and the position in it, kept between steps and sessions.

Kernels read in a critical section, one after the other, because reading may have to wait for a work
item from a queue. They enter it with `AcquireReader` and leave it with `ReleaseReader`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.records import Records
from jflow.resources.reader.spec import ReaderSpec
from jflow.resources.wait_queue import QueuedAttempt, QueuedResource

_ACQUIRES, _RELEASES = range(2)
_RESTORABLE = ("IdentityReader", "WholeFileReader")

Open = Callable[[bytes, Any], Records]
"""Opens a work item, at a position or, with None, at its beginning."""


class ReaderState(QueuedResource):
    """Reads the records of one work item after the other.

    Args:
      spec: what it is made as.
      name: what messages call it.
      open_: opens a work item.

    Attributes:
      acquired_by: what entered the critical section, None if it is free.
      n_records: how many records it has read.
      n_work_units: how many work items it has read to their end.
    """

    def __init__(self, spec: ReaderSpec, name: str, open_: Open) -> None:
        super().__init__(AcquireReader, ReleaseReader, n_wait_queues=2)
        self.spec = spec
        self.name = name
        self.acquired_by: AcquireReader | None = None
        self.n_records = 0
        self.n_work_units = 0
        self._open = open_
        self._work: tuple[bytes, Records] | None = None

    def __str__(self) -> str:
        return f"{self.spec.kind} {self.name!r}"

    # In the critical section ------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a work item was begun and not read to its end."""
        return self._work is not None

    def begin(self, work: bytes) -> None:
        """Begins a work item. Raises OpError if it cannot be opened, which uses it up."""
        self._work = (work, self._open(work, None))

    def read(self, count: int) -> tuple[list[bytes], list[bytes]]:
        """Keys and values of up to `count` records of the work item; none if it is at its end.

        Raises:
          OpError: if it cannot be read; it then counts as read to its end.
        """
        assert self._work is not None
        _, records = self._work
        try:
            keys, values = records.read_up_to(count)
        except BaseException:
            self._finish()
            raise
        if not keys:
            self._finish()
        self.n_records += len(keys)
        return keys, values

    def reset(self) -> None:
        """Forgets the work item and the counts."""
        self.clear()
        self.n_records = self.n_work_units = 0

    def state(self) -> bytes:
        """Its position, for `resume`.

        Raises:
          UnimplementedError: if positions inside work items of its kind cannot be saved.
        """
        self._check_restorable()
        work = None if self._work is None else self._work[0].hex()
        position = None if self._work is None else self._work[1].position
        return json.dumps(
            [self.spec.kind, work, position, self.n_records, self.n_work_units]
        ).encode()

    def resume(self, state: bytes) -> None:
        """Continues where `state` was taken; a malformed state resets the reader.

        Raises:
          InvalidArgumentError: if it is malformed.
          UnimplementedError: as `state`.
        """
        self._check_restorable()
        self.reset()
        try:
            kind, work, position, n_records, n_work_units = json.loads(state)
            if kind != self.spec.kind:
                raise ValueError(f"it is of {kind!r}")
            if not (_is_count(n_records) and _is_count(n_work_units)):
                raise ValueError("its counts are no numbers of things")
            item = None if work is None else bytes.fromhex(work)
        except (ValueError, TypeError) as error:
            raise InvalidArgumentError(f"{self} was given no state of a reader: {error}") from None
        if item is not None:
            self._work = (item, self._open(item, position))
        self.n_records, self.n_work_units = n_records, n_work_units

    def clear(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work[1].close()

    def _finish(self) -> None:
        self.clear()
        self.n_work_units += 1

    def _check_restorable(self) -> None:
        if self.spec.kind not in _RESTORABLE:
            raise UnimplementedError(
                f"{self} has no state that could be taken elsewhere; of {', '.join(_RESTORABLE)} "
                "it can be"
            )


def _is_count(value: object) -> bool:
    """Whether it is a number of things, which fits an int64."""
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


class ReleaseReader(QueuedAttempt[ReaderState]):
    """Leaves the critical section; does nothing if it was never entered.

    Args:
      acquired: what entered it, or was cancelled.
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
