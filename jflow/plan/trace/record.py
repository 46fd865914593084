"""`TaskRecord`: times that one task recorded of a traced step; `Recorder` records them.

A record has numbers only: a device is a position in its list, an instruction one in the plan of
the device. What they are called the client knows (`jflow.plan.trace.measured`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from math import isfinite
from struct import pack
from typing import Any, ClassVar, NamedTuple

import numpy as np
from msgspec.structs import replace

from jflow.base.packing import Finite, Limits, Record
from jflow.errors import InvalidArgumentError
from jflow.plan.trace.spans import KINDS

MAX_ROWS = 20_000
"""How many spans, transfers and accesses each one task notes of a step; it counts the others."""

Rows = np.ndarray[Any, np.dtype[np.float64]]

_COLUMNS = {"spans": 6, "sent": 2, "received": 5, "accesses": 5}
_TIMES = {"spans": slice(3, 6), "sent": slice(1, 2), "received": slice(2, 5)}
"""The columns of each table that have times."""


class TaskRecord(Record, frozen=True, omit_defaults=True):
    """Times that one task recorded of a traced step, in seconds by one clock.

    Attributes:
      task: the task.
      devices: names of the devices of its plans.
      begun, ended: when its part of the step did.
      error: by how much its times may differ from those of other records, in seconds.
      n_dropped: how many rows were too many to be noted.
      spans: f64[n, 6]: device, instruction, kind (a position in `KINDS`), start, the end of the
        dispatch, finish.
      sent: f64[n, 2]: edge, when its value was ready to leave.
      received: f64[n, 5]: edge, bytes, when it arrived, and when its copy to the device began and
        ended.
      accesses: f64[n, 5]: device, instruction, the number of a variable in the plan, how many
        updates it had had, and 1 if it is written, 0 if it is read; in the order of the accesses.

    Raises:
      InvalidArgumentError: if the rows are malformed.
    """

    task: str
    devices: tuple[str, ...]
    begun: Finite
    ended: Finite
    error: Finite
    n_dropped: int
    spans: bytes
    sent: bytes
    received: bytes
    accesses: bytes = b""

    what: ClassVar[str] = "the record of a traced step"
    limits: ClassVar[Limits] = Limits(n_bytes=4 << 20, n_text=1 << 20)

    def __post_init__(self) -> None:
        # A step on several tasks makes each record several times, so a check has to be quick.
        for name, n_columns in _COLUMNS.items():
            packed = getattr(self, name)
            if not packed:
                continue
            if len(packed) % (8 * n_columns):
                raise InvalidArgumentError(f"expected rows of {n_columns} numbers as {name}")
            rows = self.rows(name)
            least, most = rows.min(axis=0).tolist(), rows.max(axis=0).tolist()
            if not all(map(isfinite, least + most)):  # a NaN is both
                raise InvalidArgumentError(f"expected finite numbers as {name}")
            for column, limit in self._positions(name):
                if least[column] < 0 or most[column] >= limit:
                    raise InvalidArgumentError(
                        f"expected positions below {limit}, got {rows[:, column]}"
                    )

    def _positions(self, name: str) -> Sequence[tuple[int, int]]:
        """The columns of a table that have positions in lists, and the lengths of these."""
        if name == "spans":
            return (0, len(self.devices)), (2, len(KINDS))
        return ((0, len(self.devices)),) if name == "accesses" else ()

    def rows(self, name: str) -> Rows:
        """Returns `spans`, `sent`, `received` or `accesses` as an array."""
        return np.frombuffer(getattr(self, name), "<f8").reshape(-1, _COLUMNS[name])

    def shifted(self, offset: float, error: float) -> TaskRecord:
        """Returns the record with its times shifted to another clock.

        Args:
          offset: what to add to its times, in seconds.
          error: by how much that may be wrong, in seconds.
        """
        if not offset:
            return replace(self, error=self.error + error) if error else self
        changed: dict[str, Any] = {}
        for name, times in _TIMES.items():
            rows = self.rows(name).copy()
            rows[:, times] += offset
            changed[name] = rows.tobytes()
        return replace(
            self,
            begun=self.begun + offset,
            ended=self.ended + offset,
            error=self.error + error,
            **changed,
        )


class Recorder:
    """Records what the plans of one task do in one step; thread-safe.

    Args:
      task: name of the task.
      now: the clock, in seconds.
    """

    def __init__(self, task: str, now: Callable[[], float]) -> None:
        self.now = now
        self._task = task
        self._start = now()
        self._devices: list[str] = []
        # Appending to a list needs no lock.
        self.spans: list[tuple[float, ...]] = []
        self.sent: list[tuple[float, ...]] = []
        self.received: list[tuple[float, ...]] = []
        self.accesses: list[tuple[float, ...]] = []
        self._arrivals: dict[int, float] = {}

    def of_plan(self, device: str, instructions: Sequence[object]) -> PlanRecorder:
        """Returns a recorder for the instructions of one plan."""
        self._devices.append(device)
        return PlanRecorder(self, len(self._devices) - 1, instructions)

    def arrived(self, edge: int) -> None:
        """Records that the value of an edge has arrived from another task."""
        self._arrivals[edge] = self.now()

    def arrival(self, edge: int) -> float:
        """Returns when the value of an edge arrived; the start of the step if it came earlier."""
        return self._arrivals.get(edge, self._start)

    def record(self) -> TaskRecord:
        """Returns the record of everything so far."""
        end_time = self.now()
        tables = {name: getattr(self, name) for name in _COLUMNS}
        return TaskRecord(
            task=self._task,
            devices=tuple(self._devices),
            begun=self._start,
            ended=end_time,
            error=0.0,
            n_dropped=sum(max(len(rows) - MAX_ROWS, 0) for rows in tables.values()),
            **{name: _packed(rows[:MAX_ROWS]) for name, rows in tables.items()},
        )


def _packed(rows: Sequence[Sequence[float]]) -> bytes:
    # For a few numbers this takes a third of the time of making an array of them.
    numbers = [*chain.from_iterable(rows)]
    return pack(f"<{len(numbers)}d", *numbers)


class PlanRecorder:
    """Records what one plan does in one step.

    Args:
      recorder: that of its task.
      device: the number of its device there.
      instructions: those of the plan, in order.
    """

    __slots__ = ("_device", "_numbers", "_recorder", "now")

    def __init__(self, recorder: Recorder, device: int, instructions: Sequence[object]) -> None:
        self.now = recorder.now
        self._recorder = recorder
        self._device = device
        # By identity: a plan may have equal instructions.
        self._numbers = {id(one): number for number, one in enumerate(instructions)}

    def span(
        self, kind: str, instruction: object, start: float, dispatched: float | None = None
    ) -> None:
        """Records a span that ends now.

        Args:
          kind: one of `KINDS`.
          instruction: the instruction of the plan, the same object.
          start: when it started.
          dispatched: when it had been dispatched to the device; None if that is not apart.
        """
        finish = self.now()
        number = self._numbers.get(id(instruction), -1)
        end_s = finish if dispatched is None else dispatched
        row = (self._device, number, KINDS.index(kind), start, end_s, finish)
        self._recorder.spans.append(row)

    def sent(self, edge: int) -> None:
        """Records that the value of an edge is ready to be sent."""
        self._recorder.sent.append((edge, self.now()))

    def received(self, edge: int, n_bytes: int, start: float) -> None:
        """Records that a received value is on the device; its copy to it began at `start`."""
        arrived = self._recorder.arrival(edge)
        self._recorder.received.append((edge, n_bytes, arrived, start, self.now()))

    def accessed(
        self, instruction: object, variable: int, n_updates: int, is_written: bool
    ) -> None:
        """Records that an instruction reads or writes a variable that has had `n_updates`."""
        number = self._numbers.get(id(instruction), -1)
        row = (self._device, number, variable, n_updates, is_written)
        self._recorder.accesses.append(row)


class Exchange(NamedTuple):
    """Send and receive times of a request and its reply, in seconds.

    Attributes:
      sent, answered: by the clock of the caller.
      begun, ended: when the request had come and when the answer left, by the clock of the callee.
      is_one_clock: whether the two clocks are known to be one.
    """

    sent: float
    begun: float
    ended: float
    answered: float
    is_one_clock: bool = False


def offset_of(exchange: Exchange) -> tuple[float, float]:
    """Returns the offset from the callee's clock to the caller's, and its maximal error.

    A request comes after it was sent, and an answer leaves before it comes. So the offset lies in
    an interval, whose middle is the estimate and half of whose length, which is half of the round
    trip without the work in between, is the largest error (F. Cristian, "Probabilistic clock
    synchronization", 1989). Times that are shifted by it lie between those of the caller.
    """
    low = exchange.sent - exchange.begun
    high = exchange.answered - exchange.ended
    # A time namespace can make one clock two, which the interval then shows.
    if exchange.is_one_clock and low <= 0.0 <= high:
        return 0.0, 0.0
    return (low + high) / 2, max(high - low, 0.0) / 2
