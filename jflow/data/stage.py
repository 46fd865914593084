"""Transforms of a pipeline as functions from Grain datasets to Grain datasets.

A stage is a `MapDataset` while it has random access, which is required to shuffle in full and to
shard without reading. From the first transform that loses random access on, it is an
`IterDataset`, a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jflow.data.element import unstack
from jflow.data.engine import experimental, grain
from jflow.data.parallel import Parallel, Prefetched
from jflow.data.rows import ENDLESS, Endless, Mapped, Permuted, folded, most_threads, order
from jflow.data.stream import Concatenated, Filtered, Repeated, Sliced, Stream, Unbatched
from jflow.errors import InvalidArgumentError, OutOfRangeError

Rows = grain.MapDataset[Any]
Elements = grain.IterDataset[Any]
Stage = Rows | Elements
Epochs = tuple[int, ...]
"""The numbers of the current epochs of all `repeat`s around a stage, the outermost first."""
Build = Callable[[Epochs], Stage]

_IN_THIS_THREAD = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)


def streamed(stage: Stage) -> Elements:
    """Converts a stage to a stream, read by as many threads as its transforms request."""
    if not isinstance(stage, grain.MapDataset):
        return stage
    threads = most_threads(stage)
    if not threads:
        return stage.to_iter_dataset(_IN_THIS_THREAD)
    numbers = grain.MapDataset.range(len(stage)).to_iter_dataset(_IN_THIS_THREAD)
    return Stream(partial(Parallel, call=stage.__getitem__, threads=threads), numbers)


def first_element(build: Build, transform: str) -> Any:
    """Builds a stage, iterates it once and returns its first element.

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
    """Applies a function to each number and element."""
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
    """Keeps the elements whose numbers are in a slice."""
    if isinstance(stage, grain.MapDataset):
        return stage.slice(wanted)
    return Stream(partial(Sliced, wanted=wanted), stage)


def batched(
    stage: Stage, size: int, drop_remainder: bool, collate: Callable[[Sequence[Any]], Any]
) -> Stage:
    """Groups elements; `collate` makes a batch from a sequence of them."""
    return stage.batch(size, drop_remainder=drop_remainder, batch_fn=collate)


def unbatched(stage: Stage) -> Stage:
    """Splits batches into elements."""
    return Stream(partial(Unbatched, unstack=unstack), streamed(stage))


def shuffled(
    stage: Stage, epochs: Epochs, buffer_size: int | None, seed: int, fixed: bool
) -> Stage:
    """Permutes elements: all of them with random access, otherwise those of a window."""
    if isinstance(stage, grain.MapDataset) and len(stage) < 2**32:
        return Permuted(stage, seed, epochs, fixed)
    if buffer_size is None:
        raise InvalidArgumentError(
            "shuffle() without buffer_size requires a finite dataset with random access, but this "
            "is a stream; pass a buffer_size, or shuffle before filter, interleave, unbatch, "
            "prefetch and repeat()"
        )

    def mixed(number: int, window: list[Any]) -> list[Any]:
        window_seed = folded(seed, (*(() if fixed else epochs), number))
        return [window[index] for index in order(len(window), window_seed)]

    windows = streamed(stage).batch(buffer_size, batch_fn=list).map_with_index(mixed)
    return Stream(partial(Unbatched, unstack=list), windows)


def repeated(build: Callable[[Epochs], Stage], epochs: Epochs, count: int | None) -> Stage:
    """Repeats the stage that `build` makes for each epoch; without end if `count` is None."""
    stage = build(epochs)
    if not isinstance(stage, grain.MapDataset):
        return Stream(lambda: Repeated(lambda n: iter(streamed(build((*epochs, n)))), count))
    if len(stage) == 0:
        return stage
    endless = count is None or len(stage) * count > ENDLESS
    return Endless(stage) if endless else stage.repeat(count)


def zipped(stages: Sequence[Stage]) -> Stage:
    """Combines elements of all stages into tuples, as many as the shortest stage has."""
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
