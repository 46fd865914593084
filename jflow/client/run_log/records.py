"""The records of a run log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from jflow.base.machine import ExecutionPlatform
from jflow.base.packing import Finite, Limits, Meta, Record, Word

VERSION = 1
"""The version of the format; a log of another one is refused."""

Number = Annotated[int, Meta(ge=0, lt=1 << 32)]
"""The position of a value or a step among those of the log."""

_LARGE = Limits(1 << 30, 1 << 30, 1 << 24)


class LogHeader(Record, frozen=True):
    """The first record of a log.

    Attributes:
      version: that of the format.
      jflow: the version of jflow.
      platform: that of the program's process.
    """

    what: ClassVar[str] = "header of a run log"

    version: Number
    jflow: str
    platform: ExecutionPlatform


class LogValue(Record, frozen=True, omit_defaults=True):
    """An array; the next number is its own.

    Attributes:
      dtype: the name of its dtype.
      shape: its shape.
      n_bytes: its size (`raw_bytes`).
      checksum: the CRC-32C of its bytes.
      offset: where they are in the file beside the log.
      data: the bytes, if there are few of them; then they are not in that file.
    """

    what: ClassVar[str] = "value of a run log"

    dtype: str
    shape: tuple[Word, ...]
    n_bytes: Word
    checksum: Number
    offset: Word = 0
    data: bytes | None = None


class LogStep(Record, frozen=True):
    """A step that was registered; the next number is its own.

    Attributes:
      plans: its plans, as the protocol encodes them.
      artifacts: the programs and constants of these, by digest.
      title: the operations that it computes, for people.
    """

    what: ClassVar[str] = "step of a run log"
    limits: ClassVar[Limits] = _LARGE

    plans: tuple[bytes, ...]
    artifacts: Mapping[str, Number]
    title: str


class LogRun(Record, frozen=True, omit_defaults=True):
    """A run of a step is about to begin.

    Attributes:
      id: the first of its numbers on the tasks.
      step: the step.
      feeds: the fed values.
      time: in seconds since 1970.
      attempt: of a step that is applied once: how often its client has sent it.
    """

    what: ClassVar[str] = "run of a step in a run log"
    limits: ClassVar[Limits] = _LARGE

    id: Word
    step: Number
    feeds: tuple[Number, ...]
    time: Finite
    attempt: Number = 1


class LogCall(Record, frozen=True):
    """A run has called a function of the program.

    Attributes:
      run: the run.
      function: the number of the function in its step.
      results: what it returned.
    """

    what: ClassVar[str] = "call of a function in a run log"
    limits: ClassVar[Limits] = _LARGE

    run: Word
    function: Number
    results: tuple[Number, ...]


class LogResults(Record, frozen=True, omit_defaults=True):
    """A run has returned.

    Attributes:
      run: the run.
      checksums: the CRC-32C of each fetched value.
      values: the fetched values, of a run that reads variables which no recorded step has made.
    """

    what: ClassVar[str] = "results of a step in a run log"
    limits: ClassVar[Limits] = _LARGE

    run: Word
    checksums: tuple[Number, ...]
    values: tuple[Number, ...] = ()


class LogJournal(Record, frozen=True):
    """A part of the journal of a task; see `JournalPart` for the others.

    Attributes:
      task: the name of the task.
      incarnation: that of its server.
      values: the results of calls.
    """

    what: ClassVar[str] = "journal of a task in a run log"
    limits: ClassVar[Limits] = _LARGE

    task: str
    incarnation: Word
    first: Word
    packed: bytes
    values: tuple[Number, ...]
    platform: ExecutionPlatform


class LogEnd(Record, frozen=True):
    """The last record of a log that was not cut.

    Attributes:
      reason: why it ends before the run did; "" if it does not.
      unread: tasks whose journals could not be read to their ends.
    """

    what: ClassVar[str] = "end of a run log"

    reason: str
    unread: tuple[str, ...] = ()


KINDS: tuple[type[Record], ...] = (
    LogHeader,
    LogValue,
    LogStep,
    LogRun,
    LogCall,
    LogResults,
    LogJournal,
    LogEnd,
)
"""The classes of records; the position of each is stored with it."""
