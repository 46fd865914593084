"""The definition of queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jflow.base.values import TensorSpec, shape_text
from jflow.errors import InvalidArgumentError
from jflow.state.resources.spec import Spec

FIFO = "FIFOQueue"
SHUFFLE = "RandomShuffleQueue"
PADDING = "PaddingFIFOQueue"
PRIORITY = "PriorityQueue"
KINDS = (FIFO, SHUFFLE, PADDING, PRIORITY)


class QueueSpec(Spec, frozen=True):
    """The definition of a queue: its kind, bounds and component types.

    Attributes:
      kind: one of `KINDS`.
      capacity: the largest number of elements; negative for no limit; with 0 every enqueue waits.
      capacity_bytes: the largest memory of all elements in bytes, None for no limit.
      components: the types of the components of an element. The first one of a priority queue is
        the priority, an int64 scalar.
      names: the names of the components, or none.
      min_after_dequeue: the number of elements that remain in an open shuffle queue.
      seed: the seed of a shuffle queue's order, None for a random one.

    Raises:
      InvalidArgumentError: if the definition is not valid.
    """

    what = "queue"
    restored_facts = frozenset({"seed"})  # a snapshot contains the state of the rng itself

    kind: str
    capacity: int
    capacity_bytes: int | None = None
    components: tuple[TensorSpec, ...] = ()
    names: tuple[str, ...] = ()
    min_after_dequeue: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        self._check_kind()
        self._check_bounds()
        if not self.components:
            raise InvalidArgumentError(f"a {self.kind} needs at least one component, got none")
        if self.names and len(set(self.names)) != len(self.components):
            raise InvalidArgumentError(
                f"expected {len(self.components)} different names, one for each component, "
                f"got {list(self.names)}"
            )

    @property
    def is_batchable(self) -> bool:
        """Whether elements can be dequeued in batches."""
        if self.kind == PADDING:
            return True
        return all(component.is_static for component in self.components)

    def accepts(self, fact: str, wanted: Any, found: Any) -> bool:
        # A graph without a seed can use a queue with any seed.
        return bool(wanted == found) or (fact == "seed" and wanted is None)

    def facts(self) -> Iterator[tuple[str, Any]]:
        yield "kind", self.kind
        yield "capacity", max(self.capacity, -1)
        yield "capacity in bytes", self.capacity_bytes
        yield "component types", [c.dtype.name for c in self.components]
        shapes = ", ".join(shape_text(c.shape) for c in self.components)
        yield "component shapes", f"[{shapes}]"
        yield "names", [*self.names]
        yield "min_after_dequeue", self.min_after_dequeue
        yield "seed", self.seed

    def _check_kind(self) -> None:
        if self.kind not in KINDS:
            raise InvalidArgumentError(f"expected one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.kind == PADDING:
            for i, component in enumerate(self.components):
                if component.shape is None:
                    raise InvalidArgumentError(
                        f"component {i} of a {PADDING} has an unknown rank; pass a shape, with "
                        "None for the dimensions to pad"
                    )
        if self.kind == PRIORITY and self.components[:1] != (TensorSpec((), "int64"),):
            first = [f"{c.dtype.name}{shape_text(c.shape)}" for c in self.components[:1]]
            raise InvalidArgumentError(
                f"the first component of a {PRIORITY} is the priority: expected int64(), "
                f"got {first[0] if first else 'none'}"
            )

    def _check_bounds(self) -> None:
        if self.capacity_bytes is not None and self.capacity_bytes <= 0:
            raise InvalidArgumentError(
                f"expected a capacity_bytes greater than 0, got {self.capacity_bytes}; "
                "None sets no limit"
            )
        if self.kind != SHUFFLE and self.min_after_dequeue != 0:
            raise InvalidArgumentError(
                f"min_after_dequeue is for a {SHUFFLE} only, got {self.min_after_dequeue} for a "
                f"{self.kind}"
            )
        if self.min_after_dequeue < 0:
            raise InvalidArgumentError(
                f"min_after_dequeue must be >= 0, got {self.min_after_dequeue}"
            )
        if self.kind == SHUFFLE and 0 <= self.capacity <= self.min_after_dequeue:
            raise InvalidArgumentError(
                f"min_after_dequeue must be < capacity, got {self.min_after_dequeue} and "
                f"{self.capacity}; no element could ever be dequeued"
            )
