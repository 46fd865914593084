"""What operations on resources are made of: attempts that the one who runs them waits for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import wraps
from typing import Any

import numpy as np

from jflow.resources import Attempt, Holder
from jflow.values import Array

Wanted = tuple[Holder, Attempt]
"""An attempt that an operation waits for, and where to submit it."""

Operation = Callable[..., Generator[Wanted, None, Sequence[Array]]]
"""Takes its resources and its arrays as two sequences, and attributes by name.

It is a generator that yields what it waits for and is resumed when that has settled, so that the
same one serves a thread and an event loop. If it is closed instead, it leaves nothing behind.
"""


def settled(holder: Holder, attempt: Attempt) -> Generator[Wanted, None, tuple[Any, ...]]:
    """Waits for an attempt; gives what it brought.

    Raises:
      OpError: what it failed with.
    """
    try:
        yield holder, attempt
    except GeneratorExit:
        # It may have settled already, and nobody goes on to have what it brought.
        holder.restore(attempt)
        raise
    return attempt.result()


def attempting(make: Callable[..., Attempt]) -> Operation:
    """The operation that makes one attempt of its arrays and attributes."""

    @wraps(make, updated=())  # for its signature
    def operation(
        held: Sequence[Holder], values: Sequence[Array], **attributes: Any
    ) -> Generator[Wanted, None, Sequence[Array]]:
        return (yield from settled(held[0], make(*values, **attributes)))

    return operation


def looking(at: Callable[[Any], Any]) -> Operation:
    """The operation that asks a resource something, for which nobody waits."""

    def operation(
        held: Sequence[Holder], values: Sequence[Array]
    ) -> Generator[Wanted, None, Sequence[Array]]:
        yield from ()
        return (np.asarray(held[0].look(at)),)

    return operation
