"""The kinds of queues: FIFO, random shuffle, padding FIFO and priority."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jflow.base.values import TensorSpec
from jflow.client.ops.queue import QueueBase
from jflow.client.stateful import Structure
from jflow.client.stateful.elements import in_sequence
from jflow.state.resources.queue.spec import FIFO, PADDING, PRIORITY, SHUFFLE


class FIFOQueue(QueueBase):
    """A first-in, first-out queue.

    Args:
      capacity: maximum number of elements; negative for no limit.
      dtypes: dtype of each component: one dtype, a sequence, or any pytree of dtypes.
      shapes: shape of each component in the same structure, with None for an unknown size; None
        for elements of any shape, which cannot be dequeued in batches.
      names: a name for each component, or that of a single one; elements are then dicts. None for
        no names.
      shared_name: name in the container, by which sessions share it; None for one per session.
      name: name of its handle op.
      capacity_bytes: maximum size of its elements in memory, in bytes; None for no limit.

    Raises:
      InvalidArgumentError: if a bound is out of range.
      TypeError, ValueError: if dtypes, shapes and names are invalid or differ in structure.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any,
        shapes: Any = None,
        names: Sequence[str] | None = None,
        shared_name: str | None = None,
        name: str = "fifo_queue",
        *,
        capacity_bytes: int | None = None,
    ) -> None:
        bounds = {"capacity": capacity, "capacity_bytes": capacity_bytes}
        structure = Structure(dtypes, shapes, names)
        super().__init__(FIFO, structure, shared_name, name, bounds)


class RandomShuffleQueue(QueueBase):
    """A queue that dequeues elements in random order.

    Args:
      capacity, dtypes, shapes, names, shared_name, name, capacity_bytes: as for a `FIFOQueue`.
      min_after_dequeue: number of elements that stay in it until it is closed, for mixing.
      seed: seed of the order; None for a random one.

    Raises:
      InvalidArgumentError: if a bound is out of range.
      TypeError, ValueError: if dtypes, shapes and names are invalid or differ in structure.
    """

    def __init__(  # noqa: PLR0913 - the order of TensorFlow's arguments
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: Any,
        shapes: Any = None,
        names: Sequence[str] | None = None,
        seed: int | None = None,
        shared_name: str | None = None,
        name: str = "random_shuffle_queue",
        *,
        capacity_bytes: int | None = None,
    ) -> None:
        bounds = {
            "capacity": capacity,
            "capacity_bytes": capacity_bytes,
            "min_after_dequeue": min_after_dequeue,
            "seed": seed,
        }
        structure = Structure(dtypes, shapes, names)
        super().__init__(SHUFFLE, structure, shared_name, name, bounds)


class PaddingFIFOQueue(QueueBase):
    """A FIFO queue that pads elements of different sizes when it dequeues a batch.

    In a batch, elements are padded with zeros, empty strings or False to the size of the largest.

    Args:
      capacity, dtypes, names, shared_name, name, capacity_bytes: as for a `FIFOQueue`.
      shapes: shape of each component, required, with None for each size that may differ.

    Raises:
      InvalidArgumentError: if a bound is out of range.
      TypeError, ValueError: if dtypes, shapes and names are invalid or differ in structure.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any,
        shapes: Any,
        names: Sequence[str] | None = None,
        shared_name: str | None = None,
        name: str = "padding_fifo_queue",
        *,
        capacity_bytes: int | None = None,
    ) -> None:
        structure = Structure(dtypes, shapes, names)
        if any(component.shape is None for component in structure.components):
            raise ValueError(f"a PaddingFIFOQueue needs a shape for each component, got {shapes!r}")
        bounds = {"capacity": capacity, "capacity_bytes": capacity_bytes}
        super().__init__(PADDING, structure, shared_name, name, bounds)


class PriorityQueue(QueueBase):
    """A queue that dequeues the elements with the lowest priority values first.

    The first component of an element is its priority, an int64 scalar without an entry in `types`.

    Args:
      types: dtypes of the components after the priority.
      shapes: shapes of these components.
      names: a name for each component, also for the priority; None for no names.
      capacity, shared_name, name, capacity_bytes: as for a `FIFOQueue`.

    Raises:
      InvalidArgumentError: if a bound is out of range.
      TypeError, ValueError: if dtypes, shapes and names are invalid or differ in structure.
    """

    def __init__(
        self,
        capacity: int,
        types: Any = (),
        shapes: Any = None,
        names: Sequence[str] | None = None,
        shared_name: str | None = None,
        name: str = "priority_queue",
        *,
        capacity_bytes: int | None = None,
    ) -> None:
        bounds = {"capacity": capacity, "capacity_bytes": capacity_bytes}
        structure = _with_priority(types, shapes, names)
        super().__init__(PRIORITY, structure, shared_name, name, bounds)


def _with_priority(types: Any, shapes: Any, names: Sequence[str] | None) -> Structure:
    """Returns the structure of elements whose first component is their priority."""
    others = [*types] if isinstance(types, list | tuple) else [types]
    sizes = in_sequence(shapes, len(others))
    structure = Structure([np.dtype(np.int32), *others], [(), *sizes], names)
    structure.components[0] = TensorSpec((), "int64")
    return structure
