"""Kernels of readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.resources.cell import Cell
from jflow.resources.kernel import Kernel, KernelRun, query, wait_for
from jflow.resources.queue.attempts import Dequeue
from jflow.resources.reader.state import AcquireReader, ReaderState, ReleaseReader
from jflow.values import Array


def _exclusively(work: Callable[..., KernelRun]) -> Kernel:
    """The kernel that works with a reader in a critical section."""

    @wraps(work)
    def kernel(cells: Sequence[Cell], values: Sequence[Array], **attributes: Any) -> KernelRun:
        acquired = AcquireReader()
        try:
            (reader,) = yield from wait_for(cells[0], acquired)
            return (yield from work(reader, *cells[1:], *values, **attributes))
        finally:
            cells[0].submit(ReleaseReader(acquired), lambda _: None)

    return kernel


def _read(reader: ReaderState, queue: Cell, *counts: Array, count: int = 1) -> KernelRun:
    """Reads records of the work item, or of the next one in the queue if there is none."""
    n_wanted = int(counts[0]) if counts else count
    if n_wanted <= 0:
        raise InvalidArgumentError(f"expected a positive number of records, got {n_wanted}")
    while True:
        if not reader.has_work:
            (work,) = yield from wait_for(queue, Dequeue())
            if work.shape:
                raise InvalidArgumentError(
                    f"{reader} takes single strings as work, got strings of shape {work.shape}"
                )
            reader.begin(work.item())
        keys, values = reader.read(n_wanted)
        if keys:
            return _strings(keys), _strings(values)


def _read_one(reader: ReaderState, queue: Cell) -> KernelRun:
    keys, values = yield from _read(reader, queue)
    return keys.reshape(()), values.reshape(())


def _reset(reader: ReaderState) -> KernelRun:
    yield from ()
    reader.reset()
    return ()


def _serialize(reader: ReaderState) -> KernelRun:
    yield from ()
    return (_strings([reader.state()]).reshape(()),)


def _restore_state(reader: ReaderState, state: Array) -> KernelRun:
    yield from ()
    reader.resume(state.item())
    return ()


def _strings(items: Sequence[bytes]) -> Array:
    strings = np.empty(len(items), object)
    strings[:] = items
    return strings


KERNELS: Mapping[str, Kernel] = {
    "reader.read": _exclusively(_read_one),
    "reader.read_up_to": _exclusively(_read),
    "reader.reset": _exclusively(_reset),
    "reader.serialize": _exclusively(_serialize),
    "reader.restore": _exclusively(_restore_state),
    "reader.n_records": query(lambda reader: np.int64(reader.n_records)),
    "reader.n_work_units": query(lambda reader: np.int64(reader.n_work_units)),
}
