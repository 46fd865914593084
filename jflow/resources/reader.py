"""Readers: where reading of work items has come to, kept between steps and sessions.

Reading takes one step at a time: who reads has the *turn*, which others wait for in line. What is
read, and that more work is asked of a queue, is the affair of who has the turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.records import Records
from jflow.resources.attributes import Attributes
from jflow.resources.line import LinedAttempt, LinedResource

_TURNS, _ENDS = range(2)
_RESTORABLE = ("IdentityReader", "WholeFileReader")

Open = Callable[[bytes, Any], Records]
"""Opens a work item, at a position or, with None, at its beginning."""


@dataclass(frozen=True)
class ReaderSpec:
    """A reader's kind, and the options of that kind.

    Attributes:
      kind: a kind of records, such as "TextLineReader".
      options: keyword arguments for the records of each work item.
    """

    kind: str
    options: dict[str, Any] = field(default_factory=dict)

    def check_same(self, found: ReaderSpec, name: str) -> None:
        """Refuses an existing reader that is not what this graph expects.

        Raises:
          InvalidArgumentError: saying what they differ in.
        """
        if self != found:
            raise InvalidArgumentError(
                f"Shared reader {name!r} is another one. Expected {self.kind} with {self.options}, "
                f"found {found.kind} with {found.options}; use another name or container, or "
                "reset the container"
            )

    def to_attributes(self) -> dict[str, Any]:
        """This as a record of plain values."""
        return {"kind": self.kind, "options": self.options}

    @classmethod
    def from_attributes(cls, record: object) -> ReaderSpec:
        """What `to_attributes` described. Raises InvalidArgumentError if it did not."""
        found = Attributes(record, "reader", ("kind", "options"))
        return cls(found.text("kind"), found.mapping("options"))


class Reader(LinedResource):
    """Reads the records of one work item after the other.

    Args:
      spec: what it is made as.
      name: what messages call it.
      open_: opens a work item.

    Attributes:
      turn: who may read now.
      n_records: how many records it has read.
      n_work_units: how many work items it has read to their end.
    """

    def __init__(self, spec: ReaderSpec, name: str, open_: Open) -> None:
        super().__init__(Turn, EndOfTurn)
        self.spec = spec
        self.name = name
        self.turn: Turn | None = None
        self.n_records = 0
        self.n_work_units = 0
        self._open = open_
        self._work: tuple[bytes, Records] | None = None

    def __str__(self) -> str:
        return f"{self.spec.kind} {self.name!r}"

    # For who has the turn ---------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a work item is begun that was not seen to end."""
        return self._work is not None

    def begin(self, work: bytes) -> None:
        """Begins with a work item. Raises OpError if it cannot be opened; it is used up then."""
        self._work = (work, self._open(work, None))

    def read(self, count: int) -> tuple[list[bytes], list[bytes]]:
        """Keys and values of up to `count` records of the work item; none if it is at its end.

        Raises:
          OpError: if it cannot be read on; it counts as read to its end then.
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
        """Where it is, to be given to `resume`.

        Raises:
          UnimplementedError: if it is of a kind whose items have an inside.
        """
        self._check_restorable()
        work = None if self._work is None else self._work[0].hex()
        position = None if self._work is None else self._work[1].position
        return json.dumps(
            [self.spec.kind, work, position, self.n_records, self.n_work_units]
        ).encode()

    def resume(self, state: bytes) -> None:
        """Goes on where `state` was taken; with what is no state it is reset.

        Raises:
          InvalidArgumentError: if it is none.
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


class Turn(LinedAttempt[Reader]):
    """The right to read; its value is the reader. It must be ended."""

    __slots__ = ()
    line = _TURNS

    def advance(self, state: Reader) -> bool:
        if state.turn is None:
            state.turn = self
            self.succeed((state,))
        return self.is_settled


class EndOfTurn(LinedAttempt[Reader]):
    """Ends a turn; nothing happens if it never came.

    Args:
      turn: which one.
    """

    __slots__ = ("_turn",)
    line = _ENDS

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn

    def advance(self, state: Reader) -> bool:
        if state.turn is self._turn:
            state.turn = None
        self.succeed()
        return True
