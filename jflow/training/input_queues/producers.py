"""Queues that background threads fill with the rows of a tensor, epoch after epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jflow.base.values import as_shape, declared, is_compatible, is_known, string
from jflow.client.ops import (
    FIFOQueue,
    Variable,
    check_rows,
    constant,
    count_up_to,
    identity,
    refuse_sparse,
    shuffle_rows,
    take_row,
)
from jflow.compiler.graph import (
    GraphKeys,
    Operation,
    Symbolic,
    Tensor,
    control_dependencies,
    get_default_graph,
    name_scope,
)
from jflow.training.input_queues.queue_runner import QueueRunner, add_queue_runner


def limit_epochs(tensor: Any, num_epochs: int | None = None, name: str | None = None) -> Tensor:
    """Returns a tensor that can be evaluated `num_epochs` times.

    Args:
      tensor: the tensor.
      num_epochs: maximum number of evaluations; None for no limit. A *local* variable counts them,
        which `jflow.local_variables_initializer` initializes.
      name: scope of the operations.

    Raises:
      ValueError: if `num_epochs` is not positive.
      OutOfRangeError: in the step, if it was evaluated `num_epochs` times before.
    """
    value = get_default_graph().as_tensor(tensor)
    if num_epochs is None:
        return value
    if num_epochs <= 0:
        raise ValueError(f"num_epochs must be positive, got {num_epochs}")
    with name_scope(name or "limit_epochs"):
        epochs = Variable(
            np.int32(0), trainable=False, name="epochs", collections=[GraphKeys.LOCAL_VARIABLES]
        )
        # Count after the tensor was computed: a failure is not an epoch.
        with control_dependencies([value]):
            counted = count_up_to(epochs, num_epochs)
        with control_dependencies([counted]):
            return identity(value)


def input_producer(  # noqa: PLR0913, PLR0917 - the arguments are TensorFlow's
    input_tensor: Any,
    element_shape: Sequence[int] | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
    cancel_op: Operation | None = None,
) -> FIFOQueue:
    """Returns a queue of the rows of a tensor, and adds a queue runner that fills it.

    Args:
      input_tensor: T[n, *element_shape].
      element_shape: shape of a row; None to infer it from the tensor.
      num_epochs: number of times that each row is enqueued, see `limit_epochs`; None for no limit.
      shuffle: whether to shuffle the rows in each epoch.
      seed: seed of the order; None for a random one.
      capacity: capacity of the queue in rows.
      shared_name: name by which sessions share the queue; None for one per session.
      name: scope of the operations.
      cancel_op: see `QueueRunner`.

    Raises:
      ValueError: if the shape of a row is unknown, or `num_epochs` is not positive.
      InvalidArgumentError: if n is 0; in the step, if n is unknown before.
    """
    with name_scope(name or "input_producer"):
        rows = check_rows(input_tensor)
        shape = _row_shape(rows, element_shape)
        rows = limit_epochs(rows, num_epochs)
        if shuffle:
            rows = shuffle_rows(rows, shape, seed)
        queue = FIFOQueue(capacity, [rows.dtype], [shape], shared_name=shared_name)
        add_queue_runner(QueueRunner(queue, [queue.enqueue_many([rows])], cancel_op=cancel_op))
        return queue


def string_input_producer(
    string_tensor: Any,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
    cancel_op: Operation | None = None,
) -> FIFOQueue:
    """Returns a queue of strings, such as file names, and adds a queue runner that fills it.

    Args:
      string_tensor: string[n], or a list of text.
      num_epochs, shuffle, seed, capacity, shared_name, name, cancel_op: as for `input_producer`.

    Raises:
      ValueError: if the list is empty, or as `input_producer`.
      InvalidArgumentError: as `input_producer`.
    """
    if not isinstance(string_tensor, Symbolic):
        if not len(string_tensor):
            raise ValueError("string_input_producer needs at least one string, got an empty list")
        string_tensor = constant(string_tensor, string)
    return input_producer(
        string_tensor, (), num_epochs, shuffle, seed, capacity, shared_name, name, cancel_op
    )


def range_input_producer(
    limit: int,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> FIFOQueue:
    """Returns a queue of the numbers 0 to `limit - 1`, and adds a queue runner that fills it.

    Args:
      limit: count of the numbers.
      num_epochs, shuffle, seed, capacity, shared_name, name: as for `input_producer`.

    Returns:
      The queue, of i32[] elements.

    Raises:
      ValueError, InvalidArgumentError: as `input_producer`.
    """
    numbers = np.arange(limit, dtype=np.int32)
    return input_producer(numbers, (), num_epochs, shuffle, seed, capacity, shared_name, name)


def slice_input_producer(
    tensor_list: Sequence[Any],
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> list[Tensor]:
    """Returns corresponding rows of tensors, the next ones in each step.

    A queue of row numbers is made as by `range_input_producer`.

    Args:
      tensor_list: T[n, ...] each, with one known n.
      num_epochs, shuffle, seed, capacity, shared_name, name: as for `input_producer`.

    Returns:
      A row of each tensor, T[...].

    Raises:
      ValueError: if there is no tensor, their numbers of rows are unknown or differ, or as
        `input_producer`.
      TypeError: if a tensor is sparse.
    """
    with name_scope(name or "input_producer"):
        refuse_sparse(tensor_list, "slice_input_producer")
        tensors = [get_default_graph().as_tensor(tensor) for tensor in tensor_list]
        if not tensors:
            raise ValueError("slice_input_producer needs at least one tensor")
        n_rows: Any = (tensors[0].aval.shape or (None,))[0]
        if not is_known(n_rows) or any((x.aval.shape or (None,))[0] != n_rows for x in tensors):
            raise ValueError(f"expected tensors of one known number of rows, got {tensors}")
        queue = range_input_producer(n_rows, num_epochs, shuffle, seed, capacity, shared_name)
        row = queue.dequeue()
        return [take_row(tensor, row) for tensor in tensors]


def _row_shape(rows: Tensor, wanted: Sequence[int] | None) -> tuple[int, ...]:
    """Returns the shape of a row, from the tensor and the user's `element_shape`."""
    actual = None if rows.aval.shape is None else declared(rows.aval.shape[1:])
    shape = actual if wanted is None else declared(as_shape(wanted))
    known = [size for size in shape or () if size is not None]
    if shape is None or len(known) < len(shape) or not is_compatible(actual, shape):
        raise ValueError(
            f"the shape of a row of {rows!r} is not fully known, or does not match "
            f"element_shape={wanted}; pass an element_shape that is known and matches"
        )
    return tuple(known)
