"""Random-access datasets that Grain lacks, as its `MapDataset`.

Grain continues the numbers in later epochs: in a dataset of length `n`, number `n` is element 0 of
the second epoch. A transform keeps the epoch and changes the number within it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jflow.data.engine import experimental, grain

ENDLESS = 2**62
"""The length of endless datasets: never reached in practice, and small enough for `len`."""

_WHOLE_ORDERS = 2**16
"""Up to this length a permutation is computed as a whole, which is faster than by element."""


class RowSlices:
    """The rows of a pytree of arrays."""

    def __init__(self, arrays: Any, length: int) -> None:
        self._arrays = arrays
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return jax.tree.map(lambda array: array[index], self._arrays)


class Numbers:
    """The numbers of a range, as int64 scalars."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> np.int64:
        return np.int64(self._numbers[index])


class Mapped(grain.MapDataset[Any]):
    """Applies a function to each element and its number, in up to `threads` threads."""

    def __init__(
        self, parent: grain.MapDataset[Any], call: Callable[[int, Any], Any], threads: int = 0
    ) -> None:
        super().__init__(parent)
        self._call = call
        self.threads = threads

    def __len__(self) -> int:
        return min(len(self._parent), ENDLESS)  # an endless dataset of Grain is longer

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        return self._call(index % len(self), self._parent[index])


class Endless(grain.MapDataset[Any]):
    """Repeats a nonempty dataset endlessly.

    Its length is a multiple of the input's, so that its own epochs begin with those of the input;
    the length of Grain's endless `repeat` is not.
    """

    def __len__(self) -> int:
        return ENDLESS - ENDLESS % len(self._parent)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        return self._parent[index]


class Permuted(grain.MapDataset[Any]):
    """Permutes all elements, differently in each epoch unless `fixed`."""

    def __init__(
        self, parent: grain.MapDataset[Any], seed: int, epochs: tuple[int, ...], fixed: bool
    ) -> None:
        super().__init__(parent)
        self._seed = seed
        self._epochs = epochs
        self._fixed = fixed

    def __len__(self) -> int:
        return len(self._parent)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        epoch, number = divmod(index, len(self))
        seed = epoch_seed(self._seed, () if self._fixed else (*self._epochs, epoch))
        return self._parent[epoch * len(self) + _permuted(number, len(self), seed)]


def _permuted(number: int, length: int, seed: int) -> int:
    if length <= _WHOLE_ORDERS:
        return int(order(length, seed)[number])
    # Grain's shuffle of 4**k + 1 numbers is not a permutation: one number occurs twice, one never.
    # There the shuffle of one more number is used. Following it until it gives a number in range
    # skips the surplus number and stays a permutation of the others.
    last = length if (length - 1).bit_count() == 1 else length - 1
    other = length
    while other >= length:
        other = number = experimental.index_shuffle(number, max_index=last, seed=seed, rounds=4)
    return int(other)


@functools.lru_cache
def epoch_seed(seed: int, epochs: tuple[int, ...]) -> int:
    """Returns the 32-bit seed of an epoch."""
    return int(np.random.SeedSequence((seed, *epochs)).generate_state(1)[0])


@functools.lru_cache(maxsize=16)
def order(length: int, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns a random permutation, i64[length], that is the same in all versions of NumPy."""
    return np.argsort(np.random.Philox(key=seed).random_raw(length), kind="stable")


def most_threads(rows: grain.MapDataset[Any]) -> int:
    """Returns the largest number of threads that any transform of the dataset requests."""
    own = rows.threads if isinstance(rows, Mapped) else 0
    return max([own, *(most_threads(parent) for parent in rows.parents)])
