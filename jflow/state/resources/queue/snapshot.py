"""Snapshots of queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np

from jflow.base.packing import Meta, Record
from jflow.base.values import Array
from jflow.state.resources.queue.spec import SHUFFLE, QueueSpec
from jflow.state.resources.snapshot import PackedSnapshot, check_count, inconsistent
from jflow.state.resources.tensors import check_fits

Rows = Array | tuple[Array, ...]
"""One component of several elements: stacked, [n, ...]; n arrays if their shapes may differ."""

_STACKED = -1
_WORD_BITS = 64
_N_WORDS = 6


@dataclass(frozen=True)
class RngState:
    """The state of a shuffle queue's random number generator.

    Attributes:
      algorithm: the name of the bit generator in NumPy.
      words: six unsigned 64-bit integers: state and increment of PCG64, each with the high word
        first, then whether half of an output is kept for the next call, and that half.
    """

    algorithm: str
    words: tuple[int, ...]


class _Packed(Record, frozen=True):
    """The record of a queue's snapshot: everything except its arrays.

    Attributes:
      n_arrays: for each component the number of arrays that hold its rows; `_STACKED` for one array
        that holds all rows.
    """

    what = "snapshot of a queue"

    spec: QueueSpec
    n_arrays: tuple[Annotated[int, Meta(ge=_STACKED, le=2**31)], ...]
    is_closed: bool
    rng: RngState | None


@dataclass(frozen=True, eq=False)
class QueueSnapshot:
    """The saved state of a queue: its elements, whether it is closed, and its random state.

    The elements include those that an unfinished dequeue has taken, and not those that an
    unfinished enqueue has yet to add. There may be more elements than the capacity, as after such a
    dequeue is cancelled; enqueues then wait until there are fewer.

    Attributes:
      spec: the definition of the queue.
      elements: all elements, as rows for each component, in the order in which they leave the
        queue; elements with equal priorities thus keep their order. In a shuffle queue they are in
        the order of their rows, which together with `rng` determines what leaves next.
      is_closed: whether the queue is closed.
      rng: the random state of a shuffle queue; None for other kinds.
    """

    spec: QueueSpec
    elements: tuple[Rows, ...]
    is_closed: bool
    rng: RngState | None = None

    def packed(self) -> PackedSnapshot:
        """See `Snapshot`."""
        n_arrays = tuple(
            len(rows) if isinstance(rows, tuple) else _STACKED for rows in self.elements
        )
        record = _Packed(self.spec, n_arrays, self.is_closed, self.rng)
        arrays: list[Array] = []
        for rows in self.elements:
            arrays.extend(rows if isinstance(rows, tuple) else [rows])
        return PackedSnapshot(record.to_bytes(), tuple(arrays))

    @classmethod
    def unpacked(cls, packed: PackedSnapshot) -> Self:
        """See `Snapshot`."""
        record = _Packed.from_bytes(packed.record)
        check_count(packed.arrays, sum(abs(n) for n in record.n_arrays), record.what)
        remaining_arrays = iter(packed.arrays)
        elements = tuple(
            next(remaining_arrays)
            if n == _STACKED
            else tuple(next(remaining_arrays) for _ in range(n))
            for n in record.n_arrays
        )
        return cls(record.spec, elements, record.is_closed, record.rng)

    def check(self, queue: object) -> None:
        """Raises InvalidArgumentError if the elements do not match the spec."""
        components = self.spec.components
        if len(self.elements) != len(components):
            raise inconsistent(
                queue, f"it has {len(self.elements)} components, expected {len(components)}"
            )
        sizes = [len(rows) for rows in self.elements]
        if len({*sizes}) > 1:
            raise inconsistent(queue, f"its components have different numbers of elements: {sizes}")
        for i, (component, rows) in enumerate(zip(components, self.elements, strict=True)):
            expected_spec, arrays = component, rows
            if component.is_static:
                expected_spec, arrays = component.batch, (np.asarray(rows),)
            for array in arrays:
                check_fits(expected_spec, array, f"component {i} of the snapshot", queue)
        if (self.spec.kind == SHUFFLE) != (self.rng is not None):
            raise inconsistent(queue, "a random state belongs to a shuffle queue, and to no other")
        if self.rng is not None:
            _check_rng(self.rng, queue)


def rng_state(rng: np.random.Generator) -> RngState:
    """Returns the state of a random number generator, which must use PCG64, NumPy's default."""
    state: Any = rng.bit_generator.state
    halves = [_split_words(state["state"][key]) for key in ("state", "inc")]
    return RngState(
        state["bit_generator"],
        (*halves[0], *halves[1], int(state["has_uint32"]), int(state["uinteger"])),
    )


def set_rng_state(rng: np.random.Generator, saved: RngState) -> None:
    """Sets the state of a random number generator, as checked by `QueueSnapshot.check`."""
    words = saved.words
    rng.bit_generator.state = {
        "bit_generator": saved.algorithm,
        "state": {"state": _join_words(words[:2]), "inc": _join_words(words[2:4])},
        "has_uint32": words[4],
        "uinteger": words[5],
    }


def _check_rng(saved: RngState, queue: object) -> None:
    if saved.algorithm != "PCG64":
        raise inconsistent(
            queue,
            f"its random state is of {saved.algorithm!r}, expected 'PCG64'",
        )
    limits = (*[1 << _WORD_BITS] * 4, 2, 1 << 32)
    if len(saved.words) != _N_WORDS or not all(
        0 <= word < limit for word, limit in zip(saved.words, limits, strict=True)
    ):
        raise inconsistent(queue, f"{saved.words} is not a random state")


def _split_words(number: int) -> tuple[int, int]:
    return number >> _WORD_BITS, number % (1 << _WORD_BITS)


def _join_words(words: Sequence[int]) -> int:
    high, low = words
    return (high << _WORD_BITS) + low
