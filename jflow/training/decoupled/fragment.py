"""A fragment of a model on the cluster: what learners have contributed to it, and how it merges.

Everything of a fragment is on one task, and each function here is one program there, which has
exclusive access to the fragment. So contributions of learners at once follow each other.

A *round* of a fragment is the time between two merges. What a learner contributes is the difference
between the values that it began with and its own, its pseudo-gradient, weighted by the tokens that
it has processed since. A merge applies the mean to the values by the outer optimizer.

Each contribution of a learner has a number, its *serial*, and says which one it replaces. So one
whose reply was lost, or that a restore has undone, is neither counted twice nor taken away twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jflow.client.functions import Function
from jflow.compiler.graph import device
from jflow.training.optimizers.rule import GradientTransformation

N_LEARNERS = 1024
"""How many numbers learners have; one that joins gets a free number, or the least recent one."""

NEVER = -2
"""The last round of a learner that has not contributed."""

_LATER = 1 << 30
"""More than the number of any round."""


class RoundProgress(NamedTuple):
    """How far the present round of a fragment is.

    Attributes:
      round: the number of merges before it, i32[].
      n_contributed: how many learners have contributed, i32[].
      n_awaited: how many learners have contributed to the last round, or joined since, and have
        neither left nor contributed to this one, i32[].
      own_round, own_serial: the latest contribution of the learner that asks, and its round, i32[].
    """

    round: Any
    n_contributed: Any
    n_awaited: Any
    own_round: Any
    own_serial: Any


def first_state(values: Sequence[Any], outer: GradientTransformation) -> dict[str, Any]:
    """Returns the first values of what is known of the rounds of a fragment."""
    return {
        "outer": outer.init(list(values)),
        "sum": [np.zeros_like(wide(value)) for value in values],
        "weight": np.zeros((), np.float32),
        "round": np.zeros((), np.int32),
        "seen": np.full(N_LEARNERS, NEVER, np.int32),
        "serial": np.zeros(N_LEARNERS, np.int32),
        "is_there": np.zeros(N_LEARNERS, bool),
    }


class Fragment:
    """A fragment of a model on the cluster; for use on its connection.

    Args:
      variables: those of `first_state`, and "params", the values of the fragment.
      on: their device.
      outer: the optimizer of merges.
    """

    def __init__(
        self, variables: Mapping[str, Any], on: str, outer: GradientTransformation
    ) -> None:
        self._variables = variables
        self._device = on
        self._outer = outer
        self._progress = Function(self._read_progress)
        self._pull = Function(self._read_values)
        self._contribute = Function(self._add)
        self._merge = Function(self._apply)
        self._join = Function(self._enter)
        self._leave = Function(self._forget)

    # Each in one step -------------------------------------------------------------------------

    def progress(self, learner: int = 0) -> RoundProgress:
        """Returns how far the present round is."""
        return _as_ints(self._progress(np.int32(learner)))

    def pull(self, learner: int = 0) -> tuple[RoundProgress, list[Any]]:
        """Returns how far the present round is, and the values."""
        progress, values = self._pull(np.int32(learner))
        return _as_ints(progress), values

    def contribute(
        self,
        learner: int,
        number: int,
        serials: tuple[int, int],
        change: Sequence[Any],
        weight: float,
    ) -> RoundProgress:
        """Adds to the pseudo-gradients of a round, unless the round has ended.

        Args:
          learner: which learner contributes.
          number: the round.
          serials: of the contribution to this round that is replaced, 0 if there is none, and of
            this one. If another one is there, nothing is added.
          change: what is added to the weighted sum.
          weight: what is added to the sum of the weights.
        """
        numbers = map(np.int32, (learner, number, *serials))
        return _as_ints(self._contribute([*numbers], change, np.float32(weight)))

    def merge(self, number: int) -> None:
        """Ends a round, unless it has ended or has no contribution."""
        self._merge(np.int32(number))

    def join(self, learner: int | None = None) -> int:
        """Records that a learner takes part, so that the present round waits for it.

        Args:
          learner: its number; None for a free one.

        Returns:
          Its number.
        """
        return int(self._join(np.int32(-1 if learner is None else learner)))

    def leave(self, learner: int) -> None:
        """Records that no round has to wait for a learner. What it has contributed counts."""
        self._leave(np.int32(learner))

    # On its task ------------------------------------------------------------------------------

    def _read_progress(self, learner: Any) -> RoundProgress:
        with device(self._device):
            return _progress_of(self._values(), learner)

    def _read_values(self, learner: Any) -> Any:
        with device(self._device):
            state = self._values()
            return _progress_of(state, learner), state["params"]

    def _add(self, numbers: Any, change: Any, weight: Any) -> RoundProgress:
        learner, number, former, serial = numbers
        with device(self._device):
            state = self._values()
            there = jnp.where(state["seen"][learner] == number, state["serial"][learner], 0)
            is_due = (state["round"] == number) & (there == former)

            def marked(values: Any, value: Any) -> Any:
                return jnp.where(is_due, values.at[learner].set(value), values)

            new = {
                "sum": [
                    a + jnp.where(is_due, b, 0) for a, b in zip(state["sum"], change, strict=True)
                ],
                "weight": state["weight"] + jnp.where(is_due, weight, 0),
                "seen": marked(state["seen"], number),
                "serial": marked(state["serial"], serial),
            }
            self._assign(new)
            return _progress_of({**state, **new}, learner)

    def _apply(self, number: Any) -> None:
        with device(self._device):
            state = self._values()
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

            self._assign(jax.tree.map(chosen, merged, {name: state[name] for name in merged}))

    def _enter(self, learner: Any) -> Any:
        with device(self._device):
            state = self._values()
            # The free number that has not contributed for longest, as what has is still counted.
            taken = jnp.where(state["is_there"], _LATER, 0)
            number = jnp.where(learner < 0, jnp.argmin(state["seen"] + taken), learner)
            self._assign(
                {
                    "seen": state["seen"].at[number].set(state["round"] - 1),
                    "serial": state["serial"].at[number].set(0),
                    "is_there": state["is_there"].at[number].set(True),
                }
            )
            return number

    def _forget(self, learner: Any) -> None:
        with device(self._device):
            self._assign({"is_there": self._values()["is_there"].at[learner].set(False)})

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = jax.tree.map(lambda v: v.value(), dict(self._variables))
        return values

    def _assign(self, new: dict[str, Any]) -> None:
        own = {name: self._variables[name] for name in new}
        jax.tree.map(lambda variable, value: variable.assign(value), own, new)


def _progress_of(state: Any, learner: Any) -> RoundProgress:
    seen, number = state["seen"], state["round"]
    is_awaited = state["is_there"] & (seen == number - 1)
    own = seen[learner], state["serial"][learner]
    return RoundProgress(number, jnp.sum(seen == number), jnp.sum(is_awaited), *own)


def wide(value: Any) -> Any:
    """Returns an array as NumPy's, with at least the precision of float32."""
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.itemsize < 4 else array


def _as_ints(progress: RoundProgress) -> RoundProgress:
    return RoundProgress(*map(int, progress))
