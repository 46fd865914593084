"""`Learner`: the side of one learner, whose exchanges run beside its steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jflow.training.decoupled.fragment import Fragment, RoundProgress, wide

_POLL_S = 0.02


@dataclass
class _LocalFragment:
    """A fragment as a learner has it.

    Attributes:
      fragment: the fragment on the cluster.
      positions: of its arrays among those of the model.
      base: its values at the last merge that the learner has taken.
      round: the number of merges that they are of.
      sent: the learner's values when it last contributed to this round, and their weight; None if
        it has not.
      merged: how many tokens of the learner are in values of earlier rounds.

    Values are as `wide` makes them.
    """

    fragment: Fragment
    positions: Sequence[int]
    base: list[Any]
    round: int
    sent: tuple[list[Any], float] | None = None
    merged: float = 0.0


@dataclass(frozen=True)
class _Merged:
    """What an exchange has found: values of a later round, and those that they replace."""

    part: _LocalFragment
    values: list[Any]
    former: list[Any]


class Learner:
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
            start, base = run(fragment.pull)
            run(partial(fragment.join, number))
            self._parts.append(_LocalFragment(fragment, positions, [*map(wide, base)], start))
            values.update(zip(positions, base, strict=True))
        self.params = jax.tree.unflatten(tree, [jnp.asarray(values[i]) for i in range(len(values))])
        self._thread = ThreadPoolExecutor(1, "jflow-learner")
        self._exchange: Future[_Merged | None] | None = None
        self._n_exchanges = 0
        self._tokens = 0.0
        self._is_closed = False

    def __enter__(self) -> Learner:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self.contribute()
        self.close()

    def step(self, params: Any, tokens: float = 1.0) -> Any:
        """Takes the values after an inner step; returns those to go on with.

        They differ from what it gets only after a merge: by how the merge has moved what this
        learner contributed. What it has trained since is kept.

        Args:
          params: the model, in the structure of `Decoupled`.
          tokens: how much the step counts, such as the tokens or examples of its batch.

        Raises:
          ValueError: if the model has another structure.
          OpError: if the cluster is lost.
        """
        leaves, tree = jax.tree.flatten(params)
        if tree != self._tree:
            raise ValueError(f"expected the structure {self._tree}, got {tree}")
        if self._is_closed:
            raise RuntimeError(f"{self!r} has left; join again")
        self.n_steps += 1
        self._tokens += tokens
        if self._exchange is not None and self._exchange.done():
            self._take(leaves)
        # The fragments take turns, evenly over the period.
        due = self.n_steps * len(self._parts) // self._every
        if due > self._n_exchanges and self._exchange is None:
            self._start(leaves)
        self.params = jax.tree.unflatten(tree, leaves)
        return self.params

    def contribute(self) -> Any:
        """Exchanges each fragment now, and waits for that; returns the values to go on with.

        Raises:
          OpError: if the cluster is lost.
        """
        leaves = jax.tree.leaves(self.params)
        for _ in self._parts:
            if self._exchange is not None:
                self._take(leaves)
            self._start(leaves)
        self._take(leaves)
        self.params = jax.tree.unflatten(self._tree, leaves)
        return self.params

    def close(self) -> None:
        """Ends the learner; no round waits for it any more. What it has not contributed is lost."""
        if self._is_closed:
            return
        self._is_closed = True
        self._thread.shutdown(wait=True)
        for part in self._parts:
            self._run(partial(part.fragment.leave, self.number))

    def __repr__(self) -> str:
        return f"<jflow.train.Learner {self.number} after {self.n_steps} steps>"

    # Exchanges --------------------------------------------------------------------------------

    def _start(self, leaves: Sequence[Any]) -> None:
        """Starts the exchange of the fragment whose turn it is."""
        part = self._parts[self._n_exchanges % len(self._parts)]
        self._n_exchanges += 1
        # Copies, because the user's next step may donate its arguments.
        own = [jnp.copy(leaves[position]) for position in part.positions]
        exchanged = partial(self._exchanged, part, own, self._tokens)
        self._exchange = self._thread.submit(self._run, exchanged)

    def _take(self, leaves: list[Any]) -> None:
        """Takes the result of an exchange into the values of the model."""
        assert self._exchange is not None
        exchange, self._exchange = self._exchange, None
        merged = exchange.result()
        if merged is None:
            return
        for position, new, former in zip(
            merged.part.positions, merged.values, merged.former, strict=True
        ):
            now = leaves[position]
            leaves[position] = (now + (jnp.asarray(new) - jnp.asarray(former))).astype(now.dtype)

    def _exchanged(
        self, part: _LocalFragment, arrays: Sequence[Any], tokens: float
    ) -> _Merged | None:
        """Contributes values to the present round, and ends it if it is due.

        Args:
          part: the fragment.
          arrays: the values.
          tokens: how many the learner has processed.
        """
        before = [*map(wide, arrays)]
        own = self._caught_up(part, before)
        weight = tokens - part.merged
        former, former_weight = part.sent or (part.base, 0.0)
        change = [
            weight * (a - b) - former_weight * (a - c)
            for a, b, c in zip(part.base, own, former, strict=True)
        ]
        progress = part.fragment.contribute(self.number, part.round, change, weight - former_weight)
        if progress.round == part.round:
            part.sent = own, weight
            if progress.n_contributed >= self._quorum:
                self._await_others(part, progress)
                part.fragment.merge(part.round)
        own = self._caught_up(part, own)
        return None if own is before else _Merged(part, own, before)

    def _caught_up(self, part: _LocalFragment, own: list[Any]) -> list[Any]:
        """Takes the values of a later round as base; returns the learner's own ones beside them.

        What the learner has contributed to the round that has ended is in the new values; what it
        has trained since, or all since its base if it was late, stays its own.
        """
        if part.fragment.progress().round == part.round:
            return own
        number, values = part.fragment.pull()
        former, weight = part.sent or (part.base, 0.0)
        part.base, part.round, part.sent = [*map(wide, values)], number, None
        part.merged += weight
        return [new + (a - b) for new, a, b in zip(part.base, own, former, strict=True)]

    def _await_others(self, part: _LocalFragment, progress: RoundProgress) -> None:
        """Waits until all active learners have contributed, or the grace window ends."""
        until = time.monotonic() + self._grace
        while progress.round == part.round and progress.n_awaited > 0:
            if time.monotonic() >= until:
                return
            time.sleep(_POLL_S)
            progress = part.fragment.progress()
