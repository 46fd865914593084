"""Batches of elements that background threads compute and enqueue.

A `_join` function has a source of elements for each thread, the others have one source for all
threads. The `maybe_` functions filter elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jflow.client.ops import FIFOQueue, PaddingFIFOQueue, RandomShuffleQueue
from jflow.client.ops.queue import QueueBase
from jflow.compiler.graph import get_default_graph, name_scope
from jflow.training.input_queues.queue_runner import QueueRunner, add_queue_runner
from jflow.training.input_queues.sources import Sources

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
    """Batches the values of tensors, which background threads compute in steps of their own.

    The threads fill a queue, from which the batches are dequeued. Their queue runner is added to
    the graph; `start_queue_runners` starts it.

    Args:
      tensors: an element: a tensor, or a list, dict or other pytree of tensors.
      batch_size: number of elements in a batch, an integer scalar.
      num_threads: number of threads that fill the queue; with several the order is not defined.
      capacity: capacity of the queue in elements.
      enqueue_many: whether the tensors are batches, T[n, ...], whose rows are the elements.
      shapes: shapes of the tensors of an element, in order; None to infer them.
      dynamic_pad: whether elements may differ in size; they are padded with zeros, empty strings or
        False to the largest in the batch.
      allow_smaller_final_batch: whether to return a smaller last batch instead of dropping it. The
        size of batches is then unknown to the graph.
      shared_name: name by which sessions share the queue; None for one per session.
      name: scope of the operations.

    Returns:
      The tensors of a batch, T[batch_size, ...], in the structure of `tensors`; a single tensor for
      a list of one.

    Raises:
      ValueError: if there is no tensor, or a shape is unknown.
      OutOfRangeError: in the step, if the threads have reached the end of their data.
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
    """Filters elements and batches them as `batch`.

    Args:
      keep_input: bool[], whether to keep the element, or all elements of a batch; with
        `enqueue_many` also bool[n], one for each.
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
    """Batches the elements of several sources, each of which has a thread; see `batch`.

    Args:
      tensors_list: an element for each thread, of one structure and equal dtypes. With
        `dynamic_pad` their sizes may differ.
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
    """Filters elements of several sources and batches them.

    Args:
      keep_input: see `maybe_batch`; the same mask is for all sources.
      tensors_list, batch_size, capacity, enqueue_many, shapes, dynamic_pad,
        allow_smaller_final_batch, shared_name, name: see `batch_join`.

    Raises:
      ValueError, TypeError: as `maybe_batch` and `batch_join`.
    """
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
    """Shuffles elements in a `RandomShuffleQueue` and batches them as `batch`.

    Args:
      min_after_dequeue: number of elements that stay in the queue, for mixing.
      seed: seed of the order; None for a random one.
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
    """Filters, shuffles and batches elements.

    Args:
      keep_input: see `maybe_batch`.
      tensors, batch_size, capacity, min_after_dequeue, num_threads, seed, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name: see `shuffle_batch`.

    Raises:
      ValueError, InvalidArgumentError: as `maybe_batch` and `shuffle_batch`.
    """
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
    """Shuffles and batches elements of several sources, each of which has a thread.

    Args:
      tensors_list: see `batch_join`.
      batch_size, capacity, min_after_dequeue, seed, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name: see `shuffle_batch`.

    Raises:
      ValueError, TypeError, InvalidArgumentError: as `batch_join` and `shuffle_batch`.
    """
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
    """Filters elements of several sources, shuffles and batches them.

    Args:
      keep_input: see `maybe_batch`; the same mask is for all sources.
      tensors_list: see `batch_join`.
      batch_size, capacity, min_after_dequeue, seed, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name: see `shuffle_batch`.

    Raises:
      ValueError, TypeError, InvalidArgumentError: as `maybe_batch_join` and `shuffle_batch`.
    """
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
        take = queue.dequeue_up_to if allow_smaller else queue.dequeue_many
        return sources.restored(take(batch_size))


def _checked_keep(keep_input: Any, sources: Sources) -> Any:
    if keep_input is False:
        raise ValueError(
            "keep_input=False drops all elements; if it is the result of `tensor == value`, which "
            "compares identities, use jflow.numpy.equal instead"
        )
    keep = get_default_graph().as_tensor(keep_input)
    if keep.dtype != bool:
        raise TypeError(f"expected booleans as keep_input, got {keep!r}")
    most = 1 if sources.enqueue_many else 0
    if keep.aval.shape is None or len(keep.aval.shape) > most:
        raise ValueError(
            f"expected keep_input of rank {'0 or 1' if most else '0 without enqueue_many'}, "
            f"got {keep!r}"
        )
    return keep
