"""What is quick enough for the event loop, which does nothing else meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

from jflow.task.execution.link import LinkedCall, LinkedRun

QUICK_S = 200e-6
"""The longest time that a program may take on the event loop, which does nothing else then."""

ALONE_S = 2e-3
"""The same where nothing else waits for the loop: to wake a thread, and then the loop again, takes
longer than others would wait that came meanwhile."""


def timed(linked: LinkedRun | LinkedCall, work: Callable[..., object], *args: object) -> None:
    """Does the work of an instruction, and notes how long it took."""
    begun = time.perf_counter()
    work(*args)
    linked.latency.note(time.perf_counter() - begun)


def is_quick(run: LinkedRun, is_alone: Callable[[], bool]) -> bool:
    """Whether a program may run on the event loop, which does nothing else meanwhile.

    XLA runs some programs to their end in the thread that starts them. A loop with a computed
    number of iterations may take minutes even if it was quick the last time (`may_be_quick`).

    Args:
      run: the program.
      is_alone: whether no other plan runs, and nothing that this one sends is on its way.
    """
    seconds = run.latency.seconds
    if seconds > ALONE_S or not run.may_be_quick:
        return False
    return seconds <= QUICK_S or is_alone()
