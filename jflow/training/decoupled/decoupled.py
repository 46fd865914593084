"""`Decoupled`: a model that learners train apart and merge at their own pace.

The algorithm is that of Douillard et al., "Decoupled DiLoCo for Resilient Distributed Pre-training"
(arXiv 2604.21428), a successor of DiLoCo (arXiv 2311.08105): learners make inner steps by
themselves; now and then each contributes the drift of a fragment of its model; when a quorum has
contributed, and a grace window is over, the mean, weighted by tokens, is the gradient of an outer
optimizer. There is no synchronizer here: the fragments are variables, and the learner that
completes the quorum ends the round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import cycle, islice
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jflow.client.binding import BoundState, bind
from jflow.client.functions import Connection
from jflow.client.ops.creators import without_creators
from jflow.compiler.graph import owners
from jflow.training.decoupled.fragment import Fragment, first_state
from jflow.training.decoupled.learner import Learner
from jflow.training.optimizers.rule import GradientTransformation

R = TypeVar("R")


class Decoupled:
    """A model on the cluster that learners train apart; each program makes one and joins.

    Learners may be threads, processes or machines of different speed. One that is slow, late or
    lost delays no other; one that joins begins with the merged values. All programs give the same
    arguments.

    Args:
      params: a pytree of arrays of floats: the first values, if the cluster has none yet.
      prefix: of the names of the variables.
      devices: those of the parameter servers; the fragments take turns. None for the first task of
        the cluster.
      fragments: into how many fragments the model is cut, at most one for each array.
      outer: the optimizer of merges, of Optax; its gradients are drifts. It gets each fragment by
        itself, as a list of arrays. By default SGD with Nesterov momentum,
        `optax.sgd(0.7, 0.9, nesterov=True)`.
      every: after how many steps of a learner each fragment is exchanged.
      quorum: how many learners must have contributed before a round ends.
      grace: how long a round that has its quorum waits for other learners that were there in the
        last one, in seconds.

    Raises:
      RuntimeError: outside of `jflow.connect` and of the scope of a strategy.
      TypeError: if an array is not of floats.
      ValueError: if a number is not positive, or there are no arrays.
      InvalidArgumentError, FailedPreconditionError: as `jflow.bind`.
    """

    def __init__(
        self,
        params: Any,
        prefix: str,
        devices: str | Sequence[str] | None = None,
        *,
        fragments: int = 4,
        outer: GradientTransformation | None = None,
        every: int = 100,
        quorum: int = 1,
        grace: float = 1.0,
    ) -> None:
        owner = owners.current()
        if not isinstance(owner, Connection):
            raise RuntimeError(
                "jflow.train.Decoupled makes variables on a connection; call it inside "
                "`with jflow.connect(...):` or the scope of a strategy"
            )
        numbers = {"fragments": fragments, "every": every, "quorum": quorum}
        for name, value in numbers.items():
            if value < 1:
                raise ValueError(f"expected a positive number of {name}, got {value}")
        first, self._tree = jax.tree.flatten(params)
        leaves = [np.asarray(leaf) for leaf in first]
        for leaf in leaves:
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise TypeError(f"expected arrays of floats, got {leaf.dtype}")
        if not leaves:
            raise ValueError("expected a model with arrays, got none")
        self._owner = owner
        self._options = (every, quorum, grace)
        # Optax takes longer to import than all else here.
        rule = outer or import_module("optax").sgd(0.7, momentum=0.9, nesterov=True)
        cuts = _cut(leaves, fragments)
        names = [devices] if isinstance(devices, str) else [*(devices or [str(owner.first_task())])]
        places = [*islice(cycle(names), len(cuts))]
        self._state, variables, rounds = self._bound(leaves, cuts, places, prefix, rule)
        self._parts = [
            (Fragment({**own, "params": [variables[i] for i in cut]}, on, rule), cut)
            for own, cut, on in zip(rounds, cuts, places, strict=True)
        ]

    def _bound(
        self,
        leaves: Sequence[Any],
        cuts: Sequence[Sequence[int]],
        places: Sequence[str],
        prefix: str,
        rule: GradientTransformation,
    ) -> tuple[BoundState, list[Any], list[dict[str, Any]]]:
        """Makes or finds all variables together; returns those of the arrays and the fragments."""
        rounds = [first_state([leaves[i] for i in cut], rule) for cut in cuts]
        tree = {"params": jax.tree.unflatten(self._tree, leaves), "rounds": rounds}
        of_leaf = {i: on for cut, on in zip(cuts, places, strict=True) for i in cut}
        order = [of_leaf[i] for i in range(len(leaves))]
        for own, on in zip(rounds, places, strict=True):
            order += [on] * len(jax.tree.leaves(own))
        following = iter(order)
        with without_creators():  # of a strategy, which would divide fragments
            state = bind(tree, prefix, lambda _path, _array: next(following))
        found = jax.tree.unflatten(jax.tree.structure(tree), [*state.variables.values()])
        return state, jax.tree.leaves(found["params"]), found["rounds"]

    def join(self) -> Learner:
        """Returns a learner, which has the merged values."""
        (first, _), *others = self._parts
        number = self._run(first.join)
        for fragment, _ in others:
            self._run(partial(fragment.join, number))
        return Learner(number, self._parts, self._tree, *self._options, self._run)

    def value(self) -> Any:
        """Returns the merged values, in the structure of the model."""
        leaves: dict[int, Any] = {}
        for fragment, positions in self._parts:
            _, values = self._run(fragment.pull)
            leaves.update(zip(positions, values, strict=True))
        return jax.tree.unflatten(self._tree, [leaves[i] for i in range(len(leaves))])

    def n_merges(self) -> list[int]:
        """Returns how often each fragment has been merged."""
        return [self._run(fragment.progress).round for fragment, _ in self._parts]

    def n_contributed(self) -> list[int]:
        """Returns how many learners have contributed to the present round of each fragment."""
        return [self._run(fragment.progress).n_contributed for fragment, _ in self._parts]

    def saved_state(self) -> BoundState:
        """Returns what `jflow.checkpoint` saves: all variables."""
        return self._state

    def __repr__(self) -> str:
        arrays, fragments = sum(len(cut) for _, cut in self._parts), len(self._parts)
        return f"<jflow.train.Decoupled of {arrays} arrays in {fragments} fragments>"

    def _run(self, function: Callable[[], R]) -> R:
        with owners.owned_by(self._owner):
            return function()


def _cut(arrays: Sequence[Any], n_fragments: int) -> list[list[int]]:
    """Returns the positions of the arrays of each fragment: in order, of about equal bytes."""
    total = sum(array.nbytes for array in arrays)
    cuts: list[list[int]] = [[] for _ in range(n_fragments)]
    before = 0
    for position, array in enumerate(arrays):
        middle = before + array.nbytes / 2
        cuts[min(int(middle * n_fragments / max(total, 1)), n_fragments - 1)].append(position)
        before += array.nbytes
    return [cut for cut in cuts if cut]
