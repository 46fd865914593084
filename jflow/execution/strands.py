"""Work of one thread that may have to wait in several places at once.

A *strand* is a generator that yields what it has to wait for. The thread takes every strand as far
as it goes, and then sleeps until what one of them waits for has settled.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Hashable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from jflow.deadline import Deadline
from jflow.errors import CancelledError, OpError
from jflow.resources.kernel import Wanted

Name = TypeVar("Name", bound=Hashable)
Strand = Generator[Wanted, None, None]

Woken = SimpleQueue[Any]
"""Names of strands that can go on."""


def run_strands(
    strands: Mapping[Name, Strand],
    after: Mapping[Name, Collection[Name]],
    deadline: Deadline,
    woken: Woken,
) -> None:
    """Runs strands to their end.

    Args:
      strands: the work by name.
      after: for each of them those that have to be done before it begins.
      deadline: how long to wait.
      woken: takes the names of strands that can go on; None stops all waiting.

    Raises:
      DeadlineExceededError: if the time is over; what was waited for is given up. What cannot be
        taken back and is done by then is not: who is told of an error might do it again.
      OpError: the first one that a strand raises; likewise.
    """
    missing = {name: set(after[name]) for name in strands}
    ready = [name for name, needed in missing.items() if not needed]
    parked: dict[Name, Wanted] = {}
    try:
        while ready or parked:
            try:
                name = ready.pop() if ready else _next(woken, deadline)
            except OpError as error:
                reasons = _reasons(parked)
                if _gives_up(parked):
                    raise type(error)("; it ".join([error.message, *reasons])) from None
                continue  # all was done in the last moment, and wakes its strands
            parked.pop(name, None)
            if _goes_on(name, strands[name], woken, parked):
                continue
            for other, needed in missing.items():
                if name in needed:
                    needed.discard(name)
                    if not needed:
                        ready.append(other)
    finally:
        _gives_up(parked)
        for strand in strands.values():
            strand.close()


def _goes_on(name: Name, strand: Strand, woken: Woken, parked: dict[Name, Wanted]) -> bool:
    """Takes a strand as far as it goes; whether it is not done but has to wait."""
    for cell, attempt in strand:
        parked[name] = (cell, attempt)
        if not cell.submit(attempt, lambda _: woken.put(name)):
            return True
        del parked[name]
    return False


def _gives_up(parked: Mapping[Name, Wanted]) -> bool:
    """Gives up what is waited for; whether there was anything that is not done for good."""
    for cell, attempt in parked.values():
        cell.cancel(attempt, CancelledError("Step was cancelled"))
    return any(attempt.error or attempt.can_roll_back for _, attempt in parked.values())


def _reasons(parked: Mapping[Name, Wanted]) -> list[str]:
    """What is waited for, where there is something to say."""
    return [reason for cell, attempt in parked.values() if (reason := cell.reason(attempt))]


def _next(woken: Woken, deadline: Deadline) -> Any:
    """The next strand that can go on."""
    try:
        name = woken.get(timeout=deadline.remaining())
        if name is None:
            woken.put(None)  # for whoever waits next
            raise CancelledError("Step was cancelled")
        return name
    except Empty:
        raise deadline.error("running the step") from None
