"""The state of accumulators of gradients, and the attempts on them.

Many steps add gradients, and one takes their mean. A gradient carries the number of the step in
which it was computed; gradients of steps before the current one are silently dropped.
"""

from __future__ import annotations

from typing import Any

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.state.resources.accumulator.snapshot import AccumulatorSnapshot
from jflow.state.resources.accumulator.spec import AccumulatorSpec
from jflow.state.resources.accumulator.sums import DenseSum, Slices, SparseSum
from jflow.state.resources.wait_queue import QueuedAttempt, QueuedResource

_UPDATES, _TAKES = range(2)


class Accumulator(QueuedResource[AccumulatorSnapshot]):
    """Accumulates gradients: arrays of one shape or, if its spec is sparse, slices of a tensor.

    Updates never wait; takes wait in one queue.

    Args:
      spec: its definition.
      name: its name in messages.

    Attributes:
      gradient_sum: the gradients of this step.
      global_step: gradients of smaller steps are dropped; taking increments it.
      n_dropped: the number of gradients that have been dropped.
    """

    spec: AccumulatorSpec
    saved_as = AccumulatorSnapshot

    def __init__(self, spec: AccumulatorSpec, name: str) -> None:
        apply = ApplySparse if spec.is_sparse else ApplyGradient
        super().__init__(spec, name, apply, TakeGradient, SetGlobalStep, n_wait_queues=2)
        self.gradient_sum: DenseSum | SparseSum = (SparseSum if spec.is_sparse else DenseSum)(
            spec, name
        )
        self.global_step = 0
        self.n_dropped = 0

    def __str__(self) -> str:
        return f"{self.spec.kind} {self.name!r}"

    @property
    def n_accumulated(self) -> int:
        """The number of gradients since the last take."""
        return self.gradient_sum.n_gradients

    def is_stale(self, local_step: int) -> bool:
        """Whether a gradient is older than the current step; if so, counts it as dropped."""
        is_stale = local_step < self.global_step
        self.n_dropped += is_stale
        return is_stale

    def take_gradient(self) -> tuple[Array, ...]:
        """Returns the mean or sum of all gradients, at least one, and starts the next step."""
        self.global_step += 1
        return self.gradient_sum.take_result()

    def clear(self) -> None:
        self.gradient_sum.clear()

    def save(self) -> AccumulatorSnapshot:
        return AccumulatorSnapshot(
            self.spec, self.global_step, self.n_dropped, self.gradient_sum.save()
        )

    def load(self, snapshot: AccumulatorSnapshot) -> None:
        snapshot.check(self)
        self.gradient_sum.load(snapshot.gradient_sum)
        self.global_step, self.n_dropped = snapshot.global_step, snapshot.n_dropped


class _Apply(QueuedAttempt[Accumulator]):
    """Adds a copy of a gradient, or drops it if it is stale."""

    __slots__ = ("_gradient", "_local_step")
    wait_queue = _UPDATES

    def __init__(self, gradient: Any, local_step: int) -> None:
        super().__init__()
        self._gradient = gradient
        self._local_step = local_step

    def advance(self, state: Accumulator) -> bool:
        if not state.is_stale(self._local_step):
            state.gradient_sum.check(self._gradient)
            state.gradient_sum.add(self._gradient)
        self.succeed()
        return True


class ApplyGradient(_Apply):
    """Adds a copy of a gradient, or drops it if it is stale.

    Args:
      gradient: the gradient.
      local_step: the step in which it was computed.
    """

    __slots__ = ()


class ApplySparse(_Apply):
    """Adds a copy of a sparse gradient, or drops it if it is stale.

    Slices of one gradient with the same index are added and count as one.

    Args:
      indices: i64[n], the indices of the slices.
      values: the slices, [n, ...].
      dense_shape: i64[rank], the shape of the whole tensor; None if unknown.
      local_step: the step in which it was computed.
    """

    __slots__ = ()

    def __init__(
        self, indices: Array, values: Array, dense_shape: Array | None, local_step: int
    ) -> None:
        super().__init__(Slices(indices, values, dense_shape), local_step)


class TakeGradient(QueuedAttempt[Accumulator]):
    """Takes the mean or sum of all gradients as soon as there are at least `count`.

    Its values are the gradient; for a sparse accumulator the indices, slices and dense shape.

    Args:
      count: the least number of gradients.
    """

    __slots__ = ("_count",)
    wait_queue = _TAKES
    can_roll_back = False

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def start(self, state: Accumulator) -> None:
        if self._count <= 0:
            raise InvalidArgumentError(
                f"cannot take the reduction of {self._count} gradients from {state}; "
                "expected 1 or more"
            )

    def advance(self, state: Accumulator) -> bool:
        if state.n_accumulated >= self._count:
            self.succeed(state.take_gradient())
        return self.is_complete

    def goal(self, state: Accumulator) -> str:
        return f"to take {self._count} gradients from {state}, which has {state.n_accumulated}"


class SetGlobalStep(QueuedAttempt[Accumulator]):
    """Sets the current step, possibly to a lower one; gradients of earlier steps are dropped.

    Args:
      step: the step.
    """

    __slots__ = ("_step",)
    wait_queue = _UPDATES

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def advance(self, state: Accumulator) -> bool:
        state.global_step = self._step
        self.succeed()
        return True
