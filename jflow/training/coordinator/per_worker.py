"""Values of which each worker has one of its own, and datasets that workers iterate over.

No Python code of the user runs on workers. The iterators of a dataset live in the coordinator's
process, one for each worker, and each is read ahead by a thread. `next(iterator)` inside a closure
is one more argument of it, which is fed with the worker's next element when the closure is started.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import jax
import numpy as np

from jflow.base.values import string
from jflow.client.ops import variable_creator_scope
from jflow.data import Dataset
from jflow.errors import CancelledError, OutOfRangeError
from jflow.plan.xla import internals
from jflow.training.coordinator.losses import ClosureInputError
from jflow.training.coordinator.remote_value import RemoteValueStatus
from jflow.training.parameter_servers import DistributedDataset

_READ_AHEAD = 4
"""How many elements are read before they are wanted, for each worker."""


class PerWorkerValues:
    """One value for each worker; a closure that takes it gets the value of its worker.

    Args:
      values: the values, in the order of the workers.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = tuple(values)

    def for_worker(self, index: int) -> Any:
        """Returns the value of one worker. Raises ValueError if it has none."""
        if index >= len(self):
            raise ValueError(f"worker {index} has joined since {self!r} was made, and has no value")
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<jflow.PerWorkerValues of {len(self)} workers>"


class PerWorkerIterator(PerWorkerValues):
    """Iterators of a per-worker dataset; an argument of closures, which call `next` on it.

    Args:
      make: makes the dataset of a worker.
      workers: the indices of the workers that there are.
    """

    def __init__(self, make: Callable[[int], Dataset], workers: Sequence[int]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._readers = {worker: _Reader(make(worker)) for worker in workers}
        if not self._readers:
            raise ValueError("there are no workers for which a dataset could be made")
        self._first = next(iter(self._readers.values()))
        self._failed: dict[int, BaseException] = {}
        weakref.finalize(self, _close_all, self._readers)

    def __next__(self) -> NoReturn:
        raise NotImplementedError(
            f"next() of {self!r} is not supported: its iterators belong to workers; pass it to "
            "schedule and call next() on the argument inside the function"
        )

    def __iter__(self) -> PerWorkerIterator:
        return self

    def __len__(self) -> int:
        return len(self._readers)

    def __repr__(self) -> str:
        return f"<jflow.PerWorkerValues of the iterators of {len(self)} workers>"

    def for_worker(self, index: int) -> Any:
        """Returns a handle on the iterator of one worker."""
        return _WorkerIterator(self, index)

    def example(self) -> Any:
        """Returns an element with the structure and types for which closures are traced."""
        with self._lock:
            reader = next(iter(self._readers.values()), self._first)
        return reader.example()

    def take_elements(self, worker: int, n: int, wait_s: float) -> list[Any] | None:
        """Returns a worker's next elements; None if they are not read within `wait_s` seconds.

        Raises:
          OutOfRangeError: at the end of the dataset.
          ClosureInputError: if the worker's dataset could not be made.
          Exception: what the dataset raises.
        """
        with self._lock:
            failure = self._failed.get(worker)
            if failure is not None:
                raise ClosureInputError(failure)
            reader = self._readers[worker]
        return reader.take_elements(n, wait_s)

    def status(self, worker: int) -> RemoteValueStatus:
        """READY, or ABORTED while the worker is down."""
        is_there = worker in self._readers
        return RemoteValueStatus.READY if is_there else RemoteValueStatus.ABORTED

    def abort(self, worker: int) -> None:
        """Marks the worker as lost."""
        with self._lock:
            reader = self._readers.pop(worker, None)
        if reader is not None:
            reader.close()

    def rebuild(self, worker: int) -> None:
        """Recreates the worker's dataset from its beginning, if it does not exist."""
        if worker in self._readers:
            return
        try:
            reader = _Reader(self._make(worker))
        except Exception as error:
            with self._lock:
                self._failed[worker] = error
            return
        with self._lock:
            self._failed.pop(worker, None)
            self._readers[worker] = reader


class _WorkerIterator:
    """The iterator of one worker, as `PerWorkerValues` show it."""

    def __init__(self, values: PerWorkerIterator, worker: int) -> None:
        self._values, self._worker = values, worker

    @property
    def status(self) -> RemoteValueStatus:
        """ABORTED while its worker is down, else READY."""
        return self._values.status(self._worker)

    def fetch(self) -> NoReturn:
        """Refuses: an iterator is no value.

        Raises:
          CancelledError: if its worker is down.
          ValueError: else.
        """
        if self.status is RemoteValueStatus.ABORTED:
            raise CancelledError(
                f"the iterator of worker {self._worker} was aborted, because the worker was lost; "
                "it begins again when the worker returns"
            )
        raise ValueError("an iterator of a worker cannot be fetched")


class PerWorkerDataset:
    """A dataset for each worker; `iter` returns an iterator for each of them.

    Args:
      make: makes the dataset of a worker.
      workers: returns the indices of the workers that there are.
      keep: is given each iterator that is made, which has to be rebuilt with its worker.
    """

    def __init__(
        self,
        make: Callable[[int], Dataset],
        workers: Callable[[], Sequence[int]],
        keep: Callable[[PerWorkerIterator], None],
    ) -> None:
        self._make, self._workers, self._keep = make, workers, keep
        specs = [make(worker).element_spec for worker in workers()]
        for spec in specs:
            _check_spec(spec)
        check_alike("elements", specs)
        self.element_spec = specs[0]

    def __iter__(self) -> PerWorkerIterator:
        if internals.is_tracing():
            raise RuntimeError(
                f"iter() of {self!r} is not supported inside a function; call it outside, and pass "
                "what it returns to schedule"
            )
        iterator = PerWorkerIterator(self._make, self._workers())
        self._keep(iterator)
        return iterator

    def __repr__(self) -> str:
        return f"<jflow.PerWorkerDataset {self.element_spec}>"


def dataset_maker(source: Any) -> Callable[[int], Dataset]:
    """Returns a function that makes the dataset of a worker.

    Args:
      source: a dataset, a distributed dataset, or a function that returns one of them.

    Raises:
      TypeError: if it is none of them.
    """
    if not callable(source) and not isinstance(source, Dataset | DistributedDataset):
        raise TypeError(
            "expected a function that returns a dataset, a jflow.data.Dataset or a distributed "
            f"dataset, got {source!r:.80} of type {type(source).__name__}"
        )

    def make(worker: int) -> Dataset:
        with variable_creator_scope(_refuse_variable):
            is_dataset = isinstance(source, Dataset | DistributedDataset)
            dataset: Any = source if is_dataset else source()
            if isinstance(dataset, DistributedDataset):
                dataset = dataset.for_worker(worker)
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"the dataset function {source!r:.80} must return a dataset, got "
                f"{dataset!r:.80} of "
                f"type {type(dataset).__name__}"
            )
        return dataset

    return make


def check_alike(what: str, types: Sequence[Any]) -> None:
    """Raises ValueError unless what the workers have is of one type."""
    for number, own in enumerate(types):
        if own != types[0]:
            raise ValueError(
                f"closures run on any worker, so the {what} of all workers must have one "
                f"structure, shape and dtype: worker 0 has {types[0]}, worker {number} {own}"
            )


def _refuse_variable(_: Any, **arguments: Any) -> NoReturn:
    raise ValueError(
        f"variable {arguments.get('name')!r} is created inside a dataset function, which is called "
        "again for every worker that returns; create it outside"
    )


def _check_spec(spec: Any) -> None:
    if any(leaf.dtype is string for leaf in jax.tree.leaves(spec)):
        raise TypeError(
            f"closures take arrays of numbers, but the elements of the dataset are {spec}; convert "
            "strings in the dataset, with map"
        )


class _End:
    """Marks the end of a dataset among its elements."""


class _Reader:
    """Prefetches a dataset on a thread that starts at the first use and ends with `close`."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._changed = threading.Condition()
        self._read: deque[Any] = deque()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._n_ahead = _READ_AHEAD

    def example(self) -> Any:
        """An element: zeros if all sizes are known, else the first element that was read."""
        spec = self._dataset.element_spec
        leaves = jax.tree.leaves(spec)
        if all(None not in leaf.shape for leaf in leaves):
            return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), spec)
        with self._changed:
            self._start_thread()
            self._changed.wait_for(lambda: self._has(1))
            self._check_open()
            return self._checked(self._read[0])

    def take_elements(self, n: int, wait_s: float) -> list[Any] | None:
        """See `PerWorkerIterator.take_elements`."""
        with self._changed:
            if n > self._n_ahead:
                self._n_ahead = n
                self._changed.notify_all()
            self._start_thread()
            if not self._changed.wait_for(lambda: self._has(n), wait_s):
                return None
            self._check_open()
            for item in list(self._read)[:n]:
                if isinstance(item, BaseException):
                    self._read.clear()
                    self._changed.notify_all()
                self._checked(item)
            elements = [self._read.popleft() for _ in range(n)]
            self._changed.notify_all()
            return elements

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has(self, n: int) -> bool:
        """Returns whether `n` elements, or the end, have been read."""
        ends = any(isinstance(item, BaseException | _End) for item in self._read)
        return len(self._read) >= n or ends or self._is_closed

    def _check_open(self) -> None:
        if self._is_closed:
            raise CancelledError("the worker of the iterator was lost")

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._read_elements, name="jflow read ahead", daemon=True
            )
            self._thread.start()

    def _read_elements(self) -> None:
        iterator: Iterator[Any] = iter(self._dataset)
        while True:
            try:
                item: Any = next(iterator)
            except StopIteration:
                item = _End()
            except Exception as error:
                item = error
            with self._changed:
                self._read.append(item)
                self._changed.notify_all()
                if isinstance(item, _End) or not self._changed.wait_for(self._may_read):
                    return
                if self._is_closed:
                    return

    def _may_read(self) -> bool:
        failed = any(isinstance(item, BaseException) for item in self._read)
        return self._is_closed or (len(self._read) < self._n_ahead and not failed)

    @staticmethod
    def _checked(item: Any) -> Any:
        if isinstance(item, _End):
            raise OutOfRangeError("the dataset of the worker has no more elements")
        if isinstance(item, BaseException):
            raise item
        return item


def _close_all(readers: dict[int, _Reader]) -> None:
    for reader in list(readers.values()):
        reader.close()
