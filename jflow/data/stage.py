"""Transforms of a pipeline as functions from Grain's datasets to Grain's datasets.

A stage is a `MapDataset` as long as its elements can be had by number, which shuffling in full and
sharding without reading need; from the first transform that cannot keep this on it is an
`IterDataset`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jflow.data.element import unstack
from jflow.data.engine import experimental, grain
from jflow.data.parallel import Parallel
from jflow.data.rows import ENDLESS, Endless, Mapped, Permuted, folded, most_threads, order
from jflow.data.stream import Concatenated, Filtered, Repeated, Sliced, Stream, Unbatched
from jflow.errors import InvalidArgumentError, OutOfRangeError

Rows = grain.MapDataset[Any]
Elements = grain.IterDataset[Any]
Stage = Rows | Elements
Epochs = tuple[int, ...]
"""Which repetition this is, for each `repeat` around a stage, the outermost first."""
Build = Callable[[Epochs], Stage]

_IN_THIS_THREAD = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)


def streamed(stage: Stage) -> Elements:
    """The stage as a stream, read by as many threads as one of its functions asks for."""
    if not isinstance(stage, grain.MapDataset):
        return stage
    threads = most_threads(stage)
    if not threads:
        return stage.to_iter_dataset(_IN_THIS_THREAD)
    numbers = grain.MapDataset.range(len(stage)).to_iter_dataset(_IN_THIS_THREAD)
    return Stream(partial(Parallel, call=stage.__getitem__, threads=threads), numbers)


def first_element(build: Build, transform: str) -> Any:
    """The first element of what `build` makes, which is iterated for it.

    Raises:
      OutOfRangeError: if there is none; the message calls it by `transform`.
    """
    iterator = iter(streamed(build(())))
    try:
        return next(iterator)
    except StopIteration:
        raise OutOfRangeError(
            f"{transform} has no element, so that their shapes and dtypes are not known"
        ) from None
    finally:
        iterator.close()


def mapped(stage: Stage, call: Callable[[int, Any], Any], threads: int = 0) -> Stage:
    """A function of number and element."""
    if isinstance(stage, grain.MapDataset):
        return Mapped(stage, call, threads)
    if not threads:
        return stage.map_with_index(call)
    numbered = stage.map_with_index(lambda number, element: (number, element))
    return Stream(partial(Parallel, call=lambda pair: call(*pair), threads=threads), numbered)


def filtered(stage: Stage, wanted: Callable[[int, Any], bool]) -> Stage:
    """The elements of which a function is true."""
    return Stream(partial(Filtered, wanted=wanted), streamed(stage))


def sliced(stage: Stage, wanted: slice) -> Stage:
    """The elements with numbers in a slice."""
    if isinstance(stage, grain.MapDataset):
        return stage.slice(wanted)
    return Stream(partial(Sliced, wanted=wanted), stage)


def batched(
    stage: Stage, size: int, drop_remainder: bool, collate: Callable[[Sequence[Any]], Any]
) -> Stage:
    """Batches, each made of a sequence of elements by a function."""
    return stage.batch(size, drop_remainder=drop_remainder, batch_fn=collate)


def unbatched(stage: Stage) -> Stage:
    """The elements of batches."""
    return Stream(partial(Unbatched, unstack=unstack), streamed(stage))


def shuffled(
    stage: Stage, epochs: Epochs, buffer_size: int | None, seed: int, fixed: bool
) -> Stage:
    """Another order: in full where elements have numbers, else within windows."""
    if isinstance(stage, grain.MapDataset) and len(stage) < 2**32:
        return Permuted(stage, seed, epochs, fixed)
    if buffer_size is None:
        raise InvalidArgumentError(
            "shuffle() in full needs a finite dataset whose elements can be had by number, and "
            "here they come as a stream; give shuffle a buffer_size, or shuffle before "
            "filter, interleave, unbatch, prefetch and repeat()"
        )

    def mixed(number: int, window: list[Any]) -> list[Any]:
        window_seed = folded(seed, (*(() if fixed else epochs), number))
        return [window[index] for index in order(len(window), window_seed)]

    windows = streamed(stage).batch(buffer_size, batch_fn=list).map_with_index(mixed)
    return Stream(partial(Unbatched, unstack=list), windows)


def repeated(build: Callable[[Epochs], Stage], epochs: Epochs, count: int | None) -> Stage:
    """Several epochs of what `build` makes, which learns the epoch's number, or endless ones."""
    stage = build(epochs)
    if not isinstance(stage, grain.MapDataset):
        return Stream(lambda: Repeated(lambda n: iter(streamed(build((*epochs, n)))), count))
    if len(stage) == 0:
        return stage
    endless = count is None or len(stage) * count > ENDLESS
    return Endless(stage) if endless else stage.repeat(count)


def zipped(stages: Sequence[Stage]) -> Stage:
    """Tuples of elements, as many as the shortest stage has."""
    rows = [stage for stage in stages if isinstance(stage, grain.MapDataset)]
    if len(rows) < len(stages):
        return experimental.ZipIterDataset([streamed(stage) for stage in stages], strict=False)
    shortest = slice(min(len(stage) for stage in rows))
    return experimental.ZipMapDataset([stage.slice(shortest) for stage in rows])


def concatenated(stages: Sequence[Stage]) -> Stage:
    """One stage after the other."""
    rows = [stage for stage in stages if isinstance(stage, grain.MapDataset)]
    if len(rows) < len(stages) or sum(len(stage) for stage in rows) > ENDLESS:
        return Stream(Concatenated, *(streamed(stage) for stage in stages))
    return grain.MapDataset.concatenate(rows)


def prefetched(stage: Stage, count: int) -> Stage:
    """Reads ahead in a thread."""
    return experimental.ThreadPrefetchIterDataset(streamed(stage), prefetch_buffer_size=count)
