"""Kernels of queues."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.state.resources.attempt import Attempt
from jflow.state.resources.cell import Cell
from jflow.state.resources.kernel import Kernel, KernelRun, query, single_attempt
from jflow.state.resources.queue.attempts import Close, Dequeue, DequeueMany, Enqueue, EnqueueMany


def _enqueue(*components: Array, by_priority: bool = False) -> Attempt:
    return Enqueue(_convert_priorities(components) if by_priority else components)


def _enqueue_many(*components: Array, by_priority: bool = False) -> Attempt:
    return EnqueueMany(_convert_priorities(components) if by_priority else components)


def _convert_priorities(components: tuple[Array, ...]) -> tuple[Array, ...]:
    """Converts priorities to int64, which programs cannot produce if JAX has 64 bits disabled."""
    return (components[0].astype(np.int64), *components[1:])


def _dequeue_many(
    *counts: Array, count: int = 0, up_to: bool = False, minimum: int | None = None
) -> Attempt:
    """Makes a `DequeueMany` whose count and minimum come from inputs or else attributes."""
    n_wanted = counts[0].item() if counts else count
    n_enough = counts[1].item() if len(counts) > 1 else minimum
    return DequeueMany(
        operator.index(n_wanted), up_to, None if n_enough is None else operator.index(n_enough)
    )


def _close(*, cancel_pending_enqueues: bool = False) -> Attempt:
    return Close(cancel_pending_enqueues)


_ON_ONE: Mapping[str, Kernel] = {
    "queue.enqueue": single_attempt(_enqueue),
    "queue.enqueue_many": single_attempt(_enqueue_many),
    "queue.dequeue": single_attempt(Dequeue),
    "queue.dequeue_many": single_attempt(_dequeue_many),
    "queue.close": single_attempt(_close),
    "queue.size": query(lambda queue: np.int32(queue.size)),
    "queue.is_closed": query(lambda queue: np.bool_(queue.is_closed)),
}


def _run_selected(
    cells: Sequence[Cell], values: Sequence[Array], *, function: str, **attributes: Any
) -> KernelRun:
    """Runs another kernel on one of several queues, which the first input selects by index."""
    number = operator.index(values[0].item())
    if not 0 <= number < len(cells):
        raise InvalidArgumentError(f"expected a queue index of 0 to {len(cells) - 1}, got {number}")
    if function not in _ON_ONE:
        raise InvalidArgumentError(f"{function!r} is not a kernel of a queue")
    return (yield from _ON_ONE[function]([cells[number]], values[1:], **attributes))


KERNELS: Mapping[str, Kernel] = {**_ON_ONE, "queue.selected": _run_selected}
