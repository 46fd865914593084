"""What clients saw, and whether a cluster could have done it.

Every call begins and ends at a moment of its own, by one counter for all clients of a simulation.
A call whose end is unknown may have been done at any time after its beginning, or never.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from tests.chaos.checker import check
from tests.chaos.history import OK, OPEN, Call, Element

NEVER = float("inf")
_N_EXACT = 24
"""Of how many calls every order is tried, at most."""

Kind = Literal["write", "read", "put", "get", "count"]


@dataclass
class Operation:
    """A call of a client.

    Attributes:
      client: the client that made it.
      kind: what it was.
      value: what it wrote, read, put or got; None if that is not known.
      invoked: when it began.
      ended: when it had ended; infinity if it is not known how.
    """

    client: str
    kind: Kind
    value: Any
    invoked: float
    ended: float = NEVER

    @property
    def is_known(self) -> bool:
        """Whether it is known to be done."""
        return self.ended < NEVER


class History:
    """The calls of all clients on one variable or queue.

    Args:
      clock: counts the moments.
    """

    def __init__(self, clock: Iterator[int]) -> None:
        self.operations: list[Operation] = []
        self._clock = clock

    @contextmanager
    def call(self, client: str, kind: Kind, value: Any = None) -> Iterator[Operation]:
        """A call; it counts as done if the block ends without an error."""
        operation = Operation(client, kind, value, next(self._clock))
        self.operations.append(operation)
        yield operation
        operation.ended = next(self._clock)

    @property
    def n_known(self) -> int:
        """The number of calls that are known to be done."""
        return sum(one.is_known for one in self.operations)


Model = Callable[[Any, Operation], Iterator[Any]]
"""Gives the states in which an operation may leave a state; none if it cannot happen there."""


def is_linearizable(operations: Sequence[Operation], initial: Any, model: Model) -> bool:
    """Whether operations can have happened one after the other, each between beginning and end.

    The search is that of Wing and Gong (1993), with the memory of Lowe (2017): what was done and
    the state that it led to are tried once.

    Args:
      operations: at most about 30, as the time may grow exponentially.
      initial: the state before them, which must be hashable.
      model: what each of them does.
    """
    known = [one.is_known for one in operations]
    wanted = sum(1 << i for i, is_known in enumerate(known) if is_known)
    tried: set[tuple[int, Any]] = set()
    paths = [(0, initial)]
    while paths:
        done, state = paths.pop()
        if done & wanted == wanted:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        left = [i for i in range(len(operations)) if not done >> i & 1]
        first_end = min(operations[i].ended for i in left)
        for i in left:
            if operations[i].invoked < first_end:
                paths += ((done | 1 << i, after) for after in model(state, operations[i]))
    return False


def register(state: Any, operation: Operation) -> Iterator[Any]:
    """The model of a variable: a read gives what was written last."""
    if operation.kind == "write":
        yield operation.value
    elif operation.value is None or operation.value == state:
        yield state


def fifo(state: tuple[Any, ...], operation: Operation) -> Iterator[tuple[Any, ...]]:
    """The model of a queue: what comes out is what was put first."""
    if operation.kind == "put":
        yield (*state, operation.value)
    elif state and operation.value in (None, state[0]):
        yield state[1:]


def check_register(history: History, initial: float) -> Iterator[str]:
    """Yields what a variable cannot have done."""
    # A read that has failed says nothing.
    calls = [one for one in history.operations if one.is_known or one.kind == "write"]
    if not is_linearizable(calls, initial, register):
        yield "no order of the reads and writes gives what was read: " + _told(calls)


def check_queue(history: History) -> Iterator[str]:
    """Yields what a queue cannot have done, which is empty in the end.

    A get that was cut off may have taken an element, or may give it back late, which
    `tests/chaos/checker.py` allows for. Without such, the order is checked exactly.
    """
    calls = history.operations
    names: dict[Any, Element] = {}
    for number, one in enumerate(calls):
        if one.kind == "put":
            names[one.value] = Element(number, number)
    unknown = Element(-1, -1)
    told = [
        Call(
            one.kind,
            one.invoked,
            one.ended,
            OK if one.is_known else OPEN,
            () if one.value is None else (names.get(one.value, unknown),),
        )
        for one in calls
    ]
    yield from check(told).violations
    is_exact = all(one.is_known for one in calls if one.kind == "get") and len(calls) <= _N_EXACT
    if is_exact and not is_linearizable(calls, (), fifo):
        yield "no order of the puts and gets gives what came out: " + _told(calls)


def check_count(history: History, final: float, what: str) -> Iterator[str]:
    """Yields why a counter cannot have its final value, as each call counts once."""
    least, most = history.n_known, len(history.operations)
    if not least <= final <= most:
        yield f"{what} is {final:g} after {least} acknowledged and {most - least} unknown counts"
    seen = [one.value for one in history.operations if one.is_known]
    if len(set(seen)) < len(seen):
        yield f"two counts of {what} have given the same: {sorted(seen)}"
    for one, other in itertools.permutations(history.operations, 2):
        if one.ended < other.invoked and other.is_known and one.value >= other.value:
            yield f"a later count of {what} has given {other.value:g} after {one.value:g}"


def _told(operations: Sequence[Operation]) -> str:
    return "; ".join(
        f"{one.client} {one.kind} {one.value} [{one.invoked:g}, {one.ended:g}]"
        for one in operations
    )
