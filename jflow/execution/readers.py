"""The operations on readers that plans call."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.execution.waiting import Operation, Wanted, looking, settled
from jflow.resources import Dequeue, EndOfTurn, Holder, Reader, Turn
from jflow.values import Array

Waiting = Generator[Wanted, None, Sequence[Array]]


def _in_turn(work: Callable[..., Waiting]) -> Operation:
    """The operation that works with a reader while nobody else does."""

    @wraps(work)
    def operation(held: Sequence[Holder], values: Sequence[Array], **attributes: Any) -> Waiting:
        turn = Turn()
        try:
            (reader,) = yield from settled(held[0], turn)
            return (yield from work(reader, *held[1:], *values, **attributes))
        finally:
            held[0].submit(EndOfTurn(turn), lambda _: None)

    return operation


def _read(reader: Reader, queue: Holder, *counts: Array, count: int = 1) -> Waiting:
    """Reads records of the work item, or of the next one in the queue if there is none."""
    n_wanted = int(counts[0]) if counts else count
    if n_wanted <= 0:
        raise InvalidArgumentError(f"expected a positive number of records, got {n_wanted}")
    while True:
        if not reader.has_work:
            (work,) = yield from settled(queue, Dequeue())
            if work.shape:
                raise InvalidArgumentError(
                    f"{reader} takes single strings as work, got strings of shape {work.shape}"
                )
            reader.begin(work.item())
        keys, values = reader.read(n_wanted)
        if keys:
            return _strings(keys), _strings(values)


def _read_one(reader: Reader, queue: Holder) -> Waiting:
    keys, values = yield from _read(reader, queue)
    return keys.reshape(()), values.reshape(())


def _reset(reader: Reader) -> Waiting:
    yield from ()
    reader.reset()
    return ()


def _serialize(reader: Reader) -> Waiting:
    yield from ()
    return (_strings([reader.state()]).reshape(()),)


def _restore(reader: Reader, state: Array) -> Waiting:
    yield from ()
    reader.resume(state.item())
    return ()


def _strings(items: Sequence[bytes]) -> Array:
    strings = np.empty(len(items), object)
    strings[:] = items
    return strings


READER_OPERATIONS: Mapping[str, Operation] = {
    "reader.read": _in_turn(_read_one),
    "reader.read_up_to": _in_turn(_read),
    "reader.reset": _in_turn(_reset),
    "reader.serialize": _in_turn(_serialize),
    "reader.restore": _in_turn(_restore),
    "reader.n_records": looking(lambda reader: np.int64(reader.n_records)),
    "reader.n_work_units": looking(lambda reader: np.int64(reader.n_work_units)),
}
