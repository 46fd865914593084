"""Batches of elements that steps of their own compute, in threads.

A *join* has a source of elements for each thread; the others have one source for all of them. The
`maybe_` functions leave elements out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jflow.graph import get_default_graph, name_scope
from jflow.ops import FIFOQueue, PaddingFIFOQueue, RandomShuffleQueue
from jflow.ops.queue import QueueBase
from jflow.training.queue_runner import QueueRunner, add_queue_runner
from jflow.training.sources import Sources

# ruff: noqa: PLR0913, PLR0917 - the arguments are TensorFlow's


def batch(
    tensors: Any,
    batch_size: Any,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Sequence[Any] | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batches of what tensors give in steps of their own.

    Threads fill a queue that the batches come from; a queue runner for them is added to the graph.

    Args:
      tensors: a tensor, or a list, dict or other pytree of tensors: an element.
      batch_size: how many elements make a batch; a number or a tensor.
      num_threads: how many threads fill the queue. With several the order is by chance.
      capacity: of the queue, in elements.
      enqueue_many: whether the tensors are batches already, whose rows are the elements.
      shapes: of an element's tensors, in their order, where they do not tell themselves.
      dynamic_pad: whether elements may differ in size. They are padded with zeros, empty strings or
        False to the largest in the batch.
      allow_smaller_final_batch: whether the last batch may be smaller, instead of being dropped.
        The graph does not know the size of batches then.
      shared_name: under which several sessions have one queue.
      name: scope for the operations.

    Returns:
      The tensors of a batch, in the structure of `tensors`; a single one for a list of one.

    Raises:
      ValueError: if there is no tensor, or the shape of one is not known.
    """
    sources = Sources.of([tensors], enqueue_many, shapes, num_threads)
    make = _fifo(capacity, dynamic_pad, shared_name)
    return _batches(sources, True, make, batch_size, allow_smaller_final_batch, name or "batch")


def maybe_batch(
    tensors: Any,
    keep_input: Any,
    batch_size: Any,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Sequence[Any] | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """As `batch`, without the elements that are not wanted.

    Args:
      keep_input: bool[], whether the element (or the whole batch of them) is wanted; bool[n] for
        each element of a batch.
      tensors, batch_size, num_threads, capacity, enqueue_many, shapes, dynamic_pad,
        allow_smaller_final_batch, shared_name, name: see `batch`.

    Raises:
      ValueError: as `batch`, or if `keep_input` has another rank.
    """
    sources = Sources.of([tensors], enqueue_many, shapes, num_threads)
    make = _fifo(capacity, dynamic_pad, shared_name)
    return _batches(
        sources, keep_input, make, batch_size, allow_smaller_final_batch, name or "maybe_batch"
    )


def batch_join(
    tensors_list: Sequence[Any],
    batch_size: Any,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Sequence[Any] | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """As `batch`, from several sources at once.

    Args:
      tensors_list: an element for each thread, all of one structure. Sizes may differ between them
        with `dynamic_pad`.
      batch_size, capacity, enqueue_many, shapes, dynamic_pad, allow_smaller_final_batch,
        shared_name, name: see `batch`.

    Raises:
      ValueError: as `batch`, or if the structures differ.
      TypeError: if the dtypes differ.
    """
    sources = Sources.of(tensors_list, enqueue_many, shapes)
    make = _fifo(capacity, dynamic_pad, shared_name)
    return _batches(
        sources, True, make, batch_size, allow_smaller_final_batch, name or "batch_join"
    )


def maybe_batch_join(
    tensors_list: Sequence[Any],
    keep_input: Any,
    batch_size: Any,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Sequence[Any] | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """As `batch_join`, without the elements that are not wanted; see `maybe_batch`."""
    sources = Sources.of(tensors_list, enqueue_many, shapes)
    make = _fifo(capacity, dynamic_pad, shared_name)
    return _batches(
        sources, keep_input, make, batch_size, allow_smaller_final_batch, name or "maybe_batch_join"
    )


def shuffle_batch(
    tensors: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Sequence[Any] | None = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """As `batch`, of elements in an order of chance.

    Args:
      min_after_dequeue: how many elements stay in the queue, to be mixed with others.
      seed: what the order depends on; None for chance.
      tensors, batch_size, capacity, num_threads, enqueue_many, shapes, allow_smaller_final_batch,
        shared_name, name: see `batch`.

    Raises:
      ValueError: as `batch`.
      InvalidArgumentError: if `min_after_dequeue` is not smaller than the capacity.
    """
    sources = Sources.of([tensors], enqueue_many, shapes, num_threads)
    make = _shuffle(capacity, min_after_dequeue, seed, shared_name)
    return _batches(
        sources, True, make, batch_size, allow_smaller_final_batch, name or "shuffle_batch"
    )


def maybe_shuffle_batch(
    tensors: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    keep_input: Any,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Sequence[Any] | None = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """As `shuffle_batch`, without the elements that are not wanted; see `maybe_batch`."""
    sources = Sources.of([tensors], enqueue_many, shapes, num_threads)
    make = _shuffle(capacity, min_after_dequeue, seed, shared_name)
    name = name or "maybe_shuffle_batch"
    return _batches(sources, keep_input, make, batch_size, allow_smaller_final_batch, name)


def shuffle_batch_join(
    tensors_list: Sequence[Any],
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Sequence[Any] | None = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """As `shuffle_batch`, from several sources at once; see `batch_join`."""
    sources = Sources.of(tensors_list, enqueue_many, shapes)
    make = _shuffle(capacity, min_after_dequeue, seed, shared_name)
    name = name or "shuffle_batch_join"
    return _batches(sources, True, make, batch_size, allow_smaller_final_batch, name)


def maybe_shuffle_batch_join(
    tensors_list: Sequence[Any],
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    keep_input: Any,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Sequence[Any] | None = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """As `shuffle_batch_join`, without the elements that are not wanted; see `maybe_batch`."""
    sources = Sources.of(tensors_list, enqueue_many, shapes)
    make = _shuffle(capacity, min_after_dequeue, seed, shared_name)
    name = name or "maybe_shuffle_batch_join"
    return _batches(sources, keep_input, make, batch_size, allow_smaller_final_batch, name)


MakeQueue = Callable[[Sources], QueueBase]


def _fifo(capacity: int, dynamic_pad: bool, shared_name: str | None) -> MakeQueue:
    def make(sources: Sources) -> QueueBase:
        if dynamic_pad:
            return PaddingFIFOQueue(capacity, **sources.types, shared_name=shared_name)
        sources.check_sizes("dynamic_pad=True")
        return FIFOQueue(capacity, **sources.types, shared_name=shared_name)

    return make


def _shuffle(
    capacity: int, min_after_dequeue: int, seed: int | None, shared_name: str | None
) -> MakeQueue:
    def make(sources: Sources) -> QueueBase:
        sources.check_sizes()
        return RandomShuffleQueue(
            capacity, min_after_dequeue, **sources.types, seed=seed, shared_name=shared_name
        )

    return make


def _batches(
    sources: Sources,
    keep_input: Any,
    make_queue: MakeQueue,
    batch_size: Any,
    allow_smaller: bool,
    name: str,
) -> Any:
    with name_scope(name):
        keep = keep_input if keep_input is True else _checked_keep(keep_input, sources)
        queue = make_queue(sources)
        add_queue_runner(QueueRunner(queue, sources.enqueue(queue, keep)))
        return queue.dequeue_up_to(batch_size) if allow_smaller else queue.dequeue_many(batch_size)


def _checked_keep(keep_input: Any, sources: Sources) -> Any:
    if keep_input is False:
        raise ValueError(
            "keep_input=False leaves everything out; if it came of `tensor == value`, which tells "
            "whether they are one object, compare them by jflow.numpy.equal"
        )
    keep = get_default_graph().as_tensor(keep_input)
    if keep.dtype != bool:
        raise TypeError(f"keep_input is of booleans, got {keep!r}")
    most = 1 if sources.enqueue_many else 0
    if keep.shape is None or len(keep.shape) > most:
        raise ValueError(
            f"keep_input has rank {'0 or 1' if most else '0 without enqueue_many'}, got {keep!r}"
        )
    return keep
