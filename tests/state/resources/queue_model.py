"""What queues should do, said with lists."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from jflow.errors import CancelledError, OutOfRangeError, ResourceExhaustedError


@dataclass(frozen=True, order=True)
class Row:
    """An element: rows are told apart by their number."""

    priority: int
    number: int
    length: int
    n_bytes: int


@dataclass(frozen=True)
class Failure:
    """How an attempt should fail."""

    kind: type
    message: str

    def matches(self, error) -> bool:
        return type(error) is self.kind and re.search(self.message, str(error)) is not None


@dataclass
class Put:
    attempt: object
    rows: list[Row]
    n_in: int = 0


@dataclass
class Shut:
    attempt: object


@dataclass
class Get:
    attempt: object
    count: int
    wanted: int
    wanted_when_closed: int
    taken: list[Row] = field(default_factory=list)


class Model:
    """A queue whose lines and contents are lists.

    `inside` is sorted for a priority queue. Of a shuffle queue it knows only how many elements are
    where: rows that are taken are any, and the test finds out which they were.
    """

    def __init__(self, spec):
        self.spec = spec
        self.is_sorted = spec.kind == "PriorityQueue"
        self.inside = []
        self.puts = []
        self.gets = []
        self.closed = False
        self.entered = []

    @property
    def n_bytes(self):
        return sum(row.n_bytes for row in self.inside)

    def submit(self, op):
        """Returns (operation, outcome) of all that complete, in order."""
        if isinstance(op, Put) and any(self.is_too_large(row) for row in op.rows):
            return [(op, Failure(ResourceExhaustedError, "can never enter"))]
        (self.gets if isinstance(op, Get) else self.puts).append(op)
        return self.run()

    def close_now(self):
        self.closed = True
        return self.run()

    def cancel(self, op):
        if op in self.puts:
            self.puts.remove(op)
        else:
            self.gets.remove(op)
            self.put_back(op)
        return self.run()

    def contents(self):
        """What a snapshot contains: as if all gets were cancelled."""
        rows = [row for get in self.gets for row in get.taken] + self.inside
        return sorted(rows, key=lambda row: row.priority) if self.is_sorted else rows

    def restore(self, rows, closed):
        """Returns (operation, outcome) of all that complete, in order."""
        self.inside, self.closed = [*rows], closed
        for get in self.gets:
            get.taken = []
        return self.run()

    def put_back(self, get):
        self.inside = get.taken + self.inside
        get.taken = []
        self.sort()

    def sort(self):
        if self.is_sorted:
            self.inside.sort()

    def run(self):
        completed = []
        while self.let_in(completed) or self.let_out(completed):
            pass
        return completed

    def let_in(self, completed):
        moved = False
        while self.puts:
            op = self.puts[0]
            if isinstance(op, Shut):
                outcome = Failure(CancelledError, "already closed") if self.closed else "closed"
                self.closed = True
            elif self.closed:
                outcome = Failure(CancelledError, "Enqueue operation was cancelled.*is closed")
            elif op.n_in == len(op.rows):
                outcome = "put"
            elif self.has_room(op.rows[op.n_in]):
                self.enter(op)
                moved = True
                if op.n_in < len(op.rows):
                    continue
                outcome = "put"
            elif self.is_stuck(op.rows[op.n_in]):
                outcome = Failure(ResourceExhaustedError, "capacity_bytes")
            else:
                break
            self.puts.pop(0)
            completed.append((op, outcome))
            moved = True
        return moved

    def enter(self, op):
        row = op.rows[op.n_in]
        op.n_in += 1
        self.inside.append(row)
        self.entered.append(row)
        self.sort()

    def is_too_large(self, row):
        return self.spec.capacity_bytes is not None and row.n_bytes > self.spec.capacity_bytes

    def has_bytes(self, row):
        limit = self.spec.capacity_bytes
        return limit is None or self.n_bytes + row.n_bytes <= limit

    def has_room(self, row):
        limit = self.spec.capacity
        return (limit < 0 or len(self.inside) < limit) and self.has_bytes(row)

    def is_stuck(self, row):
        return not self.has_bytes(row) and len(self.inside) <= self.spec.min_after_dequeue

    def let_out(self, completed):
        moved = False
        while self.gets:
            op = self.gets[0]
            n_free = len(self.inside) - (0 if self.closed else self.spec.min_after_dequeue)
            wanted = op.wanted_when_closed if self.closed else op.wanted
            if self.closed and len(op.taken) + n_free < wanted:
                missing = f"requested {op.count - len(op.taken)}, current size {n_free}\\)"
                outcome = Failure(OutOfRangeError, f"closed and has insufficient.*{missing}")
                self.put_back(op)
            else:
                n_new = 0
                while n_free > n_new and len(op.taken) < op.count:
                    op.taken.append(self.inside.pop(0))
                    n_new += 1
                moved = moved or n_new > 0
                if len(op.taken) < op.count and (n_new or len(op.taken) < wanted):
                    break
                if self.is_sorted:
                    n_taken = len(op.taken)
                    self.put_back(op)
                    op.taken, self.inside = self.inside[:n_taken], self.inside[n_taken:]
                outcome = op.taken
            self.gets.pop(0)
            completed.append((op, outcome))
            moved = True
        return moved
