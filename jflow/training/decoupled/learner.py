"""`Learner`: the side of one learner, whose exchanges run beside its steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.handles import Closing
from jflow.errors import InvalidArgumentError, OpError
from jflow.training.decoupled.fragment import Fragment, RoundProgress, wide

_POLL_S = 0.02


@dataclass
class _LocalFragment:
    """A fragment as a learner has it; the thread of its exchanges alone changes it.

    Attributes:
      fragment: the fragment on the cluster.
      positions: of its arrays among those of the model.
      base: its values at the last merge that the learner has taken.
      round: the number of merges that they are of.
      contributions: by serial, the learner's values and tokens of the contributions to this round
        that the cluster may have: of the last two, because a reply may be lost.
      merged: how many tokens of the learner are in values of earlier rounds.
      shift: by how much the values of the model are still to be moved, for merges that were taken;
        the learner's own thread does so between exchanges.

    Values are as `wide` makes them.
    """

    fragment: Fragment
    positions: Sequence[int]
    base: list[Any]
    round: int
    contributions: dict[int, tuple[list[Any], float]] = field(default_factory=dict)
    merged: float = 0.0
    shift: list[Any] | None = None


class Learner(Closing):
    """A learner, which trains by itself and exchanges fragments; `Decoupled.join` makes it.

    It is used by one thread. A `with` block, or `close`, ends it.

    Args:
      number: which learner it is.
      parts: the fragments, with the positions of their arrays.
      tree: the structure of the model.
      every: after how many steps a fragment is exchanged again.
      quorum, grace: see `Decoupled`.
      run: runs a function on the connection of the fragments.

    Attributes:
      number: as given.
      params: the values of the model, as the latest `step` has returned them.
      n_steps: how many steps it has made.
    """

    def __init__(
        self,
        number: int,
        parts: Sequence[tuple[Fragment, Sequence[int]]],
        tree: Any,
        every: int,
        quorum: int,
        grace: float,
        run: Callable[[Callable[[], Any]], Any],
    ) -> None:
        self.number = number
        self.n_steps = 0
        self._tree = tree
        self._every, self._quorum, self._grace = every, quorum, grace
        self._run = run
        self._parts = []
        values: dict[int, Any] = {}
        for fragment, positions in parts:
            progress, base = run(fragment.pull)
            self._parts.append(
                _LocalFragment(fragment, positions, [*map(wide, base)], progress.round)
            )
            values.update(zip(positions, base, strict=True))
        leaves = [jnp.asarray(values[i]) for i in range(len(values))]
        self._shapes = [leaf.shape for leaf in leaves]
        self.params = jax.tree.unflatten(tree, leaves)
        self._thread = ThreadPoolExecutor(1, "jflow-learner")
        self._exchange: Future[None] | None = None
        self._next = self._due = self._serial = 0
        self._tokens = 0.0
        self._leaving = Event()

    def _leave(self, failed: bool) -> None:
        try:
            if not failed and not self._leaving.is_set():
                self.contribute()
        finally:
            self.close()

    def step(self, params: Any, tokens: float = 1.0) -> Any:
        """Takes the values after an inner step; returns those to go on with.

        They differ from what it gets only after a merge: by how the merge has moved what this
        learner contributed. What it has trained since is kept.

        Args:
          params: the model, in the structure and shapes of `Decoupled`.
          tokens: how much the step counts, such as the tokens or examples of its batch.

        Raises:
          InvalidArgumentError: if values that it was to contribute were not finite.
          RuntimeError: if the learner has left.
          ValueError: if the model has another structure or shape.
          OpError: if the latest exchange has failed, such as for a lost task.
        """
        leaves = self._leaves(params)
        self.n_steps += 1
        self._tokens += float(tokens)
        try:
            if self._exchange is not None and self._exchange.done():
                self._take(leaves)
        finally:
            self.params = jax.tree.unflatten(self._tree, leaves)
        # The fragments take turns, evenly over the period.
        due = self.n_steps * len(self._parts) // self._every
        if due > self._due and self._exchange is None:
            self._due = due
            part = self._parts[self._next % len(self._parts)]
            self._next += 1
            self._start([part], leaves)
        return self.params

    def contribute(self) -> Any:
        """Exchanges all fragments now, and waits for that; returns the values to go on with.

        Raises:
          InvalidArgumentError, RuntimeError, OpError: as `step`.
        """
        leaves = self._leaves(self.params)
        try:
            if self._exchange is not None:
                self._take(leaves)
            self._start(self._parts, leaves)
            self._take(leaves)
        finally:
            self.params = jax.tree.unflatten(self._tree, leaves)
        return self.params

    def close(self) -> None:
        """Ends the learner; no round waits for it any more. What it has not contributed is lost."""
        if self._leaving.is_set():
            return
        self._leaving.set()
        self._thread.shutdown(wait=True)
        for part in self._parts:
            with suppress(OpError):  # a lost cluster waits for nothing
                self._run(partial(part.fragment.leave, self.number))

    def __repr__(self) -> str:
        return f"<jflow.train.Learner {self.number} after {self.n_steps} steps>"

    def _leaves(self, params: Any) -> list[Any]:
        leaves, tree = jax.tree.flatten(params)
        if tree != self._tree:
            raise ValueError(f"expected the structure {self._tree}, got {tree}")
        for leaf, shape in zip(leaves, self._shapes, strict=True):
            if np.shape(leaf) != shape:
                raise ValueError(f"expected an array of shape {shape}, got {np.shape(leaf)}")
        if self._leaving.is_set():
            raise RuntimeError(f"{self!r} has left; join again")
        return list(leaves)

    # Exchanges --------------------------------------------------------------------------------

    def _start(self, parts: Sequence[_LocalFragment], leaves: Sequence[Any]) -> None:
        # Copies, because the user's next step may donate its arguments.
        own = [[jnp.copy(leaves[position]) for position in part.positions] for part in parts]
        exchanged = partial(self._exchanged, parts, own, self._tokens)
        self._exchange = self._thread.submit(self._run, exchanged)

    def _take(self, leaves: list[Any]) -> None:
        """Waits for the exchange, and moves the values of the model by the merges that it took."""
        assert self._exchange is not None
        exchange, self._exchange = self._exchange, None
        try:
            exchange.result()
        finally:
            # Also what an exchange took that failed later: its base is already that of the merge.
            for part in self._parts if exchange.done() else ():
                for position, shift in zip(part.positions, part.shift or (), strict=False):
                    now = jnp.asarray(leaves[position])
                    leaves[position] = (now + shift).astype(now.dtype)
                part.shift = None

    def _exchanged(
        self, parts: Sequence[_LocalFragment], arrays: Sequence[Sequence[Any]], tokens: float
    ) -> None:
        """Contributes values to the present rounds, and ends those that are due.

        Args:
          parts: the fragments.
          arrays: the values of each.
          tokens: how many the learner has processed.
        """
        until = time.monotonic() + self._grace
        values = [
            self._contributed(part, [*map(wide, own)], tokens)
            for part, own in zip(parts, arrays, strict=True)
        ]
        for part, own in zip(parts, values, strict=True):
            progress = part.fragment.progress(self.number)
            if progress.round == part.round and progress.n_contributed >= self._quorum:
                self._await_others(part, progress, until)
                part.fragment.merge(part.round)
            self._caught_up(part, own)

    def _contributed(self, part: _LocalFragment, own: list[Any], tokens: float) -> list[Any]:
        """Contributes to the present round of a fragment; returns the values with its merges."""
        if part.shift is not None:
            own = [a + b for a, b in zip(own, part.shift, strict=True)]
        own = self._caught_up(part, own)
        progress = part.fragment.progress(self.number)
        former_serial = progress.own_serial if progress.own_round == part.round else 0
        if former_serial and former_serial not in part.contributions:
            return own  # a restore has brought an earlier one back, which nothing here can replace
        former, former_weight = part.contributions.get(former_serial, (part.base, 0.0))
        weight = tokens - part.merged
        if weight == former_weight:
            return own
        change = [
            weight * (a - b) - former_weight * (a - c)
            for a, b, c in zip(part.base, own, former, strict=True)
        ]
        if not all(np.isfinite(each).all() for each in change):
            raise InvalidArgumentError(
                f"{self!r} does not contribute values that are not finite; its training diverges"
            )
        self._serial += 1
        known = {former_serial: (former, former_weight)} if former_serial else {}
        part.contributions = {**known, self._serial: (own, weight)}
        serials = former_serial, self._serial
        part.fragment.contribute(self.number, part.round, serials, change, weight - former_weight)
        return own

    def _caught_up(self, part: _LocalFragment, own: list[Any]) -> list[Any]:
        """Takes the values of a later round as base; returns the learner's own ones beside them.

        What the learner has contributed to the round that has ended is in the new values; what it
        has trained since, or all since its base if it was late, stays its own.
        """
        if part.fragment.progress(self.number).round == part.round:
            return own
        progress, values = part.fragment.pull(self.number)
        is_in = progress.own_round == part.round
        contribution = part.contributions.get(progress.own_serial) if is_in else None
        former, weight = contribution or (part.base, 0.0)
        base = [*map(wide, values)]
        moves = [new - old for new, old in zip(base, former, strict=True)]
        part.shift = [a + b for a, b in zip(part.shift or [0] * len(moves), moves, strict=True)]
        part.base, part.round, part.contributions = base, progress.round, {}
        part.merged += weight
        return [a + b for a, b in zip(own, moves, strict=True)]

    def _await_others(self, part: _LocalFragment, progress: RoundProgress, until: float) -> None:
        """Waits until all active learners have contributed, or the grace window ends."""
        while progress.round == part.round and progress.n_awaited > 0:
            if time.monotonic() >= until or self._leaving.wait(_POLL_S):
                return
            progress = part.fragment.progress(self.number)
