"""A fragment of a model on the cluster: what learners have contributed to it, and how it merges.

Everything of a fragment is on one task, and each function here is one program there, which has
exclusive access to the fragment. So contributions of learners at once follow each other.

A *round* of a fragment is the time between two merges. What a learner contributes is the difference
between the values that it began with and its own, its pseudo-gradient, weighted by the tokens that
it has processed since. A merge applies the mean to the values by the outer optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jflow.client.binding import bind
from jflow.client.functions import Function
from jflow.compiler.graph import device
from jflow.training.optimizers.rule import GradientTransformation

N_LEARNERS = 256
"""How many learners are told apart; one that joins takes the place of the one as many before."""


_NEVER = -2
"""The last round of a learner that has not contributed."""


class RoundProgress(NamedTuple):
    """How far the present round of a fragment is.

    Attributes:
      round: the number of merges before it, i32[].
      n_contributed: how many learners have contributed, i32[].
      n_awaited: how many learners have contributed to the last round, or joined since, and have
        neither left nor contributed to this one, i32[].
    """

    round: Any
    n_contributed: Any
    n_awaited: Any


class Fragment:
    """A fragment of a model on the cluster; for use on its connection.

    Args:
      values: the arrays of the fragment.
      prefix: of the names of its variables.
      on: the device.
      outer: the optimizer of merges.

    Attributes:
      state: its variables.
    """

    def __init__(
        self, values: Sequence[Any], prefix: str, on: str, outer: GradientTransformation
    ) -> None:
        self._outer = outer
        self._device = on
        first = {
            "params": list(values),
            "outer": outer.init(list(values)),
            "sum": [np.zeros_like(wide(value)) for value in values],
            "weight": np.zeros((), np.float32),
            "round": np.zeros((), np.int32),
            "seen": np.full(N_LEARNERS, _NEVER, np.int32),
            "is_there": np.zeros(N_LEARNERS, bool),
        }
        self.state = bind(first, prefix, on)
        self._pull = Function(self._values)
        self._progress = Function(self._read_progress)
        self._contribute = Function(self._add)
        self._merge = Function(self._apply)
        self._mark = Function(self._note)

    # Each in one step -------------------------------------------------------------------------

    def pull(self) -> tuple[int, list[Any]]:
        """Returns the number of the present round, and the values."""
        number, values = self._pull()
        return int(number), values

    def progress(self) -> RoundProgress:
        """Returns how far the present round is."""
        return _as_ints(self._progress())

    def contribute(
        self, learner: int, number: int, change: Sequence[Any], weight: float
    ) -> RoundProgress:
        """Adds to the pseudo-gradients of a round, unless the round has ended.

        Args:
          learner: which learner contributes.
          number: the round.
          change: what is added to the weighted sum.
          weight: what is added to the sum of the weights.
        """
        return _as_ints(
            self._contribute(np.int32(learner), np.int32(number), change, np.float32(weight))
        )

    def merge(self, number: int) -> None:
        """Ends a round, unless it has ended or has no contribution."""
        self._merge(np.int32(number))

    def join(self, learner: int) -> None:
        """Records that a learner takes part, so that the present round waits for it."""
        self._mark(np.int32(learner), True)

    def leave(self, learner: int) -> None:
        """Records that no round has to wait for a learner."""
        self._mark(np.int32(learner), False)

    # On its task ------------------------------------------------------------------------------

    def _values(self) -> Any:
        with self._there():
            state = self.state.value()
            return state["round"], state["params"]

    def _read_progress(self) -> RoundProgress:
        with self._there():
            return _progress_of(self.state.value())

    def _add(self, learner: Any, number: Any, change: Any, weight: Any) -> RoundProgress:
        with self._there():
            state = self.state.value()
            is_open = state["round"] == number
            new = {
                "sum": [
                    a + jnp.where(is_open, b, 0) for a, b in zip(state["sum"], change, strict=True)
                ],
                "weight": state["weight"] + jnp.where(is_open, weight, 0),
                "seen": jnp.where(is_open, state["seen"].at[learner].set(number), state["seen"]),
            }
            self._set(state, new)
            return _progress_of({**state, **new})

    def _apply(self, number: Any) -> None:
        with self._there():
            state = self.state.value()
            is_due = (state["round"] == number) & (state["weight"] > 0)
            weight = jnp.where(is_due, state["weight"], 1.0)
            params = state["params"]
            mean = [(a / weight).astype(p.dtype) for a, p in zip(state["sum"], params, strict=True)]
            updates, outer = self._outer.update(mean, state["outer"], params)
            merged = {
                "params": jax.tree.map(jnp.add, params, updates),
                "outer": outer,
                "sum": [jnp.zeros_like(a) for a in state["sum"]],
                "weight": jnp.zeros_like(state["weight"]),
                "round": state["round"] + 1,
            }

            def chosen(new: Any, old: Any) -> Any:
                return jnp.where(is_due, new, old).astype(old.dtype)

            self._set(state, jax.tree.map(chosen, merged, {name: state[name] for name in merged}))

    def _note(self, learner: Any, is_there: Any) -> None:
        with self._there():
            state = self.state.value()
            seen = state["seen"]
            # What it has contributed to the present round counts, also if it leaves.
            at = jnp.where(is_there, state["round"] - 1, seen[learner])
            new = {
                "seen": seen.at[learner].set(at),
                "is_there": state["is_there"].at[learner].set(is_there),
            }
            self._set(state, new)

    def _set(self, state: Any, new: dict[str, Any]) -> None:
        unchanged = jax.tree.map(lambda _: None, state)
        self.state.assign({**unchanged, **new})

    def _there(self) -> AbstractContextManager[Any]:
        return device(self._device) if self._device else nullcontext()


def _progress_of(state: Any) -> RoundProgress:
    seen, number = state["seen"], state["round"]
    is_awaited = state["is_there"] & (seen == number - 1)
    return RoundProgress(number, jnp.sum(seen == number), jnp.sum(is_awaited))


def wide(value: Any) -> Any:
    """Returns an array with at least the precision of float32."""
    array = np.asarray(value)
    return array.astype(np.promote_types(array.dtype, np.float32))


def _as_ints(progress: RoundProgress) -> RoundProgress:
    return RoundProgress(*map(int, progress))
