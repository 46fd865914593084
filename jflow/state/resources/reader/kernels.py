"""Kernels of readers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError, OutOfRangeError
from jflow.state.records.strings import string_array
from jflow.state.resources.cell import Cell
from jflow.state.resources.kernel import Kernel, KernelRun, Wanted, query, wait_for
from jflow.state.resources.queue.attempts import Dequeue
from jflow.state.resources.reader.state import AcquireReader, ReaderState, ReleaseReader, WorkItem


def _in_critical_section(work: Callable[..., KernelRun]) -> Kernel:
    """Makes a kernel that runs `work` in the reader's critical section."""

    @wraps(work)
    def kernel(cells: Sequence[Cell], values: Sequence[Array], **attributes: Any) -> KernelRun:
        acquired = AcquireReader()
        try:
            (reader,) = yield from wait_for(cells[0], acquired)
            return (yield from work(reader, *cells, *values, **attributes))
        finally:
            cells[0].submit(ReleaseReader(acquired), lambda _: None)

    return kernel


def _read(
    reader: ReaderState, cell: Cell, queue: Cell, *counts: Array, count: int = 1
) -> KernelRun:
    """Reads records of the current work item, or else of the next one in the queue."""
    n_wanted = int(counts[0]) if counts else count
    if n_wanted <= 0:
        raise InvalidArgumentError(f"expected a positive number of records, got {n_wanted}")
    while True:
        item = cell.query(ReaderState.use)
        if item is None:
            yield from _begin_next(reader, cell, queue)
            continue
        keys, values = _read_records(reader, cell, item, n_wanted)
        if keys:
            return string_array(keys), string_array(values)


def _read_records(
    reader: ReaderState, cell: Cell, item: WorkItem, count: int
) -> tuple[list[bytes], list[bytes]]:
    """Reads up to `count` records of a work item; finishes an item that cannot be read."""
    try:
        keys, values = reader.read(item, count)
    except BaseException:
        cell.query(lambda _: reader.finish(item))
        raise
    cell.query(lambda _: reader.advance(item, len(keys)))
    return keys, values


def _begin_next(reader: ReaderState, cell: Cell, queue: Cell) -> Generator[Wanted, None, None]:
    """Dequeues and begins a work item, unless a restore sets one in the meantime."""
    dequeue = Dequeue()
    try:
        (work,) = yield from wait_for(queue, dequeue)
    except OutOfRangeError:
        if cell.query(lambda _: reader.work is None):
            raise
        return
    if work.shape:
        raise InvalidArgumentError(
            f"{reader} expected a scalar string as work item, got shape {work.shape}"
        )
    if not cell.query(lambda _: reader.begin_item(work.item())):
        queue.unread(dequeue)


def _read_one(reader: ReaderState, cell: Cell, queue: Cell) -> KernelRun:
    keys, values = yield from _read(reader, cell, queue)
    return keys.reshape(()), values.reshape(())


def _reset(reader: ReaderState, cell: Cell) -> KernelRun:
    yield from ()
    cell.query(lambda _: reader.reset())
    return ()


def _serialize(reader: ReaderState, cell: Cell) -> KernelRun:
    yield from ()
    return (np.array(cell.query(ReaderState.state), object),)


def _restore_state(reader: ReaderState, cell: Cell, state: Array) -> KernelRun:
    """Restores a serialized state; a malformed one resets the reader."""
    yield from ()
    cell.query(lambda _: reader.reset())
    parsed = reader.parsed(state.item())
    cell.query(lambda _: reader.resume(*parsed))
    return ()


def _read_file(cells: Sequence[Cell], values: Sequence[Array]) -> KernelRun:
    """Reads the file of a name, without a part in the work items of the reader."""
    yield from ()
    (name,) = values
    if name.shape:
        raise InvalidArgumentError(f"expected one file name, got a value of shape {name.shape}")
    item = WorkItem(name.item())
    try:
        _, contents = cells[0].query(lambda reader: reader).read(item, 1)
    finally:
        item.close()
    return (string_array(contents).reshape(()),)


KERNELS: Mapping[str, Kernel] = {
    "reader.read": _in_critical_section(_read_one),
    "reader.read_up_to": _in_critical_section(_read),
    "reader.read_file": _read_file,
    "reader.reset": _in_critical_section(_reset),
    "reader.serialize": _in_critical_section(_serialize),
    "reader.restore": _in_critical_section(_restore_state),
    "reader.n_records": query(lambda reader: np.int64(reader.n_records)),
    "reader.n_work_units": query(lambda reader: np.int64(reader.n_work_units)),
}
