"""The kinds of queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jflow.ops.queue import QueueBase
from jflow.stateful import Structure
from jflow.values import TensorSpec


class FIFOQueue(QueueBase):
    """A first-in, first-out queue.

    Args:
      capacity: how many elements it may hold; any number if negative.
      dtypes, shapes, names: what elements are made of, see `QueueBase`.
      shared_name: its name in the container; without one each session has a queue of its own.
      name: name of the operation that stands for it.
      capacity_bytes: how much memory its elements may take; None for any.

    Raises:
      InvalidArgumentError, TypeError, ValueError: if there can be no such queue.
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
        super().__init__("FIFOQueue", structure, shared_name, name, bounds)


class RandomShuffleQueue(QueueBase):
    """A queue that gives elements in random order.

    Args:
      capacity, dtypes, shapes, names, shared_name, name, capacity_bytes: as for a `FIFOQueue`.
      min_after_dequeue: how many elements stay in it while it is open, for mixing.
      seed: seed of the order; None for a random one.

    Raises:
      InvalidArgumentError, TypeError, ValueError: if there can be no such queue.
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
        super().__init__("RandomShuffleQueue", structure, shared_name, name, bounds)


class PaddingFIFOQueue(QueueBase):
    """A FIFO queue of elements of different sizes.

    Shapes must be given, with None for the sizes that differ. In a batch, elements are padded with
    zeros, empty strings or False to the size of the largest.

    Args:
      capacity, dtypes, shapes, names, shared_name, name, capacity_bytes: as for a `FIFOQueue`.

    Raises:
      InvalidArgumentError, TypeError, ValueError: if there can be no such queue.
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
        super().__init__("PaddingFIFOQueue", structure, shared_name, name, bounds)


class PriorityQueue(QueueBase):
    """A queue that gives the element of the smallest priority first.

    Elements begin with their priority, an integer of up to 64 bits, which has no entry in `types`.

    Args:
      types: dtypes of the components after the priority.
      shapes: their shapes.
      capacity, names, shared_name, name, capacity_bytes: as for a `FIFOQueue`; names include the
        priority's.

    Raises:
      InvalidArgumentError, TypeError, ValueError: if there can be no such queue.
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
        super().__init__("PriorityQueue", structure, shared_name, name, bounds, by_priority=True)


def _with_priority(types: Any, shapes: Any, names: Sequence[str] | None) -> Structure:
    """The structure of elements with a priority in front."""
    others = [*types] if isinstance(types, list | tuple) else [types]
    sizes = [None] * len(others) if shapes is None else [*shapes]
    structure = Structure([np.dtype(np.int32), *others], [(), *sizes], names)
    structure.components[0] = TensorSpec((), "int64")
    return structure
