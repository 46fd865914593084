"""Transforms of a pipeline as functions from Grain datasets to Grain datasets.

A stage is a `MapDataset` while it has random access, which is required to shuffle in full and to
shard without reading. From the first transform that loses random access on, it is an
`IterDataset`, a stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from jflow.data.element import unstack
from jflow.data.engine import experimental, grain
from jflow.data.rows import ENDLESS, Endless, Mapped, Permuted, epoch_seed, most_threads, order
from jflow.data.stream import (
    Concatenated,
    Cursor,
    Filtered,
    Repeated,
    Sliced,
    State,
    Stream,
    Unbatched,
)
from jflow.errors import InvalidArgumentError, OutOfRangeError


class Parallel(grain.DatasetIterator[Any]):
    """Reads elements ahead, as many as it has threads.

    Its position is that of its input before the oldest element that was not returned yet. This is
    the same without threads, so their number may differ where the position is restored.
    """

    def __init__(self, parent: Cursor, call: Callable[[Any], Any], threads: int) -> None:
        super().__init__(parent)
        self._call = call
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: deque[tuple[State, Future[Any]]] = deque()
        self._ended = False

    def __next__(self) -> Any:
        while not self._ended and len(self._ahead) < self._threads:
            self._read()
        if not self._ahead:
            raise StopIteration
        return self._ahead.popleft()[1].result()

    def _read(self) -> None:
        before = self._parent.get_state()
        try:
            result = self._submit(next(self._parent))
        except StopIteration:
            self._ended = True
            return
        except Exception as error:
            # It must be raised after the results of earlier elements were returned.
            self._ended = True
            result = Future()
            result.set_exception(error)
        self._ahead.append((before, result))

    def _submit(self, element: Any) -> Future[Any]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="jflow-data")
        return self._pool.submit(self._call, element)

    def get_state(self) -> State:
        return self._ahead[0][0] if self._ahead else self._parent.get_state()

    def set_state(self, state: State) -> None:
        self._stop()
        self._parent.set_state(state)
        self._ended = False

    def _stop(self) -> None:
        if self._pool is not None:
            with suppress(RuntimeError):  # of a thread that would wait for itself, see below
                self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None
        self._ahead.clear()

    def close(self) -> None:
        self._stop()
        super().close()


class Prefetched(experimental.ThreadPrefetchDatasetIterator[Any]):
    """Grain's prefetching iterator, which reads ahead in a thread.

    Grain closes an iterator that is collected as garbage, and closing waits for its threads. But
    the collector runs on any thread, also on one of these, which cannot wait for itself; it has
    been told to end by then.
    """

    def close(self) -> None:
        with suppress(RuntimeError):
            super().close()  # type: ignore[no-untyped-call]


Rows = grain.MapDataset[Any]
Elements = grain.IterDataset[Any]
Stage = Rows | Elements
Epochs = tuple[int, ...]
"""The numbers of the current epochs of all `repeat`s around a stage, the outermost first."""
Build = Callable[[Epochs], Stage]

_IN_THIS_THREAD = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)


def streamed(stage: Stage) -> Elements:
    """Converts a stage to a stream, which reads in as many threads as its transforms request."""
    if not isinstance(stage, grain.MapDataset):
        return stage
    threads = most_threads(stage)
    if not threads:
        return stage.to_iter_dataset(_IN_THIS_THREAD)
    numbers = grain.MapDataset.range(len(stage)).to_iter_dataset(_IN_THIS_THREAD)
    return Stream(partial(Parallel, call=stage.__getitem__, threads=threads), numbers)


def first_element(build: Build, transform: str) -> Any:
    """Builds a stage and returns its first element.

    Raises:
      OutOfRangeError: if the stage is empty; the message names the `transform`.
    """
    iterator = iter(streamed(build(())))
    try:
        return next(iterator)
    except StopIteration:
        raise OutOfRangeError(
            f"{transform} has no element from which to derive shapes and dtypes"
        ) from None
    finally:
        iterator.close()


def mapped(stage: Stage, call: Callable[[int, Any], Any], threads: int = 0) -> Stage:
    """Applies a function to each element and its number."""
    if isinstance(stage, grain.MapDataset):
        return Mapped(stage, call, threads)
    if not threads:
        return stage.map_with_index(call)
    numbered = stage.map_with_index(lambda number, element: (number, element))
    return Stream(partial(Parallel, call=lambda pair: call(*pair), threads=threads), numbered)


def filtered(stage: Stage, wanted: Callable[[int, Any], bool]) -> Stage:
    """Keeps the elements for which a function of number and element returns True."""
    return Stream(partial(Filtered, wanted=wanted), streamed(stage))


def sliced(stage: Stage, wanted: slice) -> Stage:
    """Keeps the elements whose numbers are in the slice `wanted`."""
    if isinstance(stage, grain.MapDataset):
        return stage.slice(wanted)
    return Stream(partial(Sliced, wanted=wanted), stage)


def batched(
    stage: Stage, size: int, drop_remainder: bool, collate: Callable[[Sequence[Any]], Any]
) -> Stage:
    """Groups elements into batches, which `collate` makes from sequences of elements."""
    return stage.batch(size, drop_remainder=drop_remainder, batch_fn=collate)


def unbatched(stage: Stage) -> Stage:
    """Splits batches into elements."""
    return Stream(partial(Unbatched, unstack=unstack), streamed(stage))


def shuffled(
    stage: Stage, epochs: Epochs, buffer_size: int | None, seed: int, fixed: bool
) -> Stage:
    """Shuffles all elements if the stage has random access, otherwise those of each window."""
    if isinstance(stage, grain.MapDataset) and len(stage) < 2**32:
        return Permuted(stage, seed, epochs, fixed)
    if buffer_size is None:
        raise InvalidArgumentError(
            "shuffle() without buffer_size requires a finite dataset with random access, but this "
            "is a stream; pass a buffer_size, or shuffle before filter, interleave, unbatch, "
            "prefetch and repeat()"
        )

    def mixed(number: int, window: list[Any]) -> list[Any]:
        window_seed = epoch_seed(seed, (*(() if fixed else epochs), number))
        return [window[index] for index in order(len(window), window_seed)]

    windows = streamed(stage).batch(buffer_size, batch_fn=list).map_with_index(mixed)
    return Stream(partial(Unbatched, unstack=list), windows)


def repeated(build: Callable[[Epochs], Stage], epochs: Epochs, count: int | None) -> Stage:
    """Repeats the stage that `build` makes for each epoch; endlessly if `count` is None."""
    stage = build(epochs)
    if not isinstance(stage, grain.MapDataset):
        return Stream(lambda: Repeated(lambda n: iter(streamed(build((*epochs, n)))), count))
    if len(stage) == 0:
        return stage
    endless = count is None or len(stage) * count > ENDLESS
    return Endless(stage) if endless else stage.repeat(count)


def zipped(stages: Sequence[Stage]) -> Stage:
    """Combines the elements of all stages into tuples, until the shortest stage ends."""
    rows = [stage for stage in stages if isinstance(stage, grain.MapDataset)]
    if len(rows) < len(stages):
        return experimental.ZipIterDataset([streamed(stage) for stage in stages], strict=False)
    shortest = slice(min(len(stage) for stage in rows))
    return experimental.ZipMapDataset([stage.slice(shortest) for stage in rows])


def concatenated(stages: Sequence[Stage]) -> Stage:
    """Chains stages."""
    rows = [stage for stage in stages if isinstance(stage, grain.MapDataset)]
    if len(rows) < len(stages) or sum(len(stage) for stage in rows) > ENDLESS:
        return Stream(Concatenated, *(streamed(stage) for stage in stages))
    return grain.MapDataset.concatenate(rows)


def prefetched(stage: Stage, count: int) -> Stage:
    """Reads up to `count` elements ahead in a thread."""
    return Stream(partial(Prefetched, prefetch_buffer_size=count), streamed(stage))
