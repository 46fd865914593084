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
from importlib import import_module
from itertools import cycle
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jflow.client.binding import bind
from jflow.client.functions import Connection, Function
from jflow.client.ops import Variable
from jflow.client.ops.creators import without_creators
from jflow.compiler.graph import owners
from jflow.training.decoupled.fragment import N_LEARNERS, Fragment
from jflow.training.decoupled.learner import Learner
from jflow.training.optimizers.rule import GradientTransformation

R = TypeVar("R")


class Decoupled:
    """A model on the cluster that learners train apart; each program makes one and joins.

    Learners may be threads, processes or machines of different speed. One that is slow, late or
    lost delays no other; one that joins begins with the merged values.

    Args:
      params: a pytree of arrays of floats: the first values, if the cluster has none yet.
      prefix: of the names of the variables.
      devices: those of the parameter servers; the fragments take turns. None for what
        `jflow.device` requests.
      fragments: into how many fragments the model is cut, at most one for each array.
      outer: the optimizer of merges, of Optax; its gradients are drifts. By default SGD with
        Nesterov momentum, `optax.sgd(0.7, 0.9, nesterov=True)`.
      every: after how many steps of a learner each fragment is exchanged.
      quorum: how many learners must have contributed before a round ends.
      grace: how long a round that has its quorum waits for other learners that were there in the
        last one, in seconds.

    Raises:
      RuntimeError: outside of `jflow.connect` and of the scope of a strategy.
      TypeError: if an array is not of floats.
      ValueError: if a number is not positive.
      InvalidArgumentError, FailedPreconditionError: as `jflow.bind`.
    """

    def __init__(
        self,
        params: Any,
        prefix: str,
        devices: Sequence[str] | None = None,
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
        leaves, self._tree = jax.tree.flatten(params)
        for leaf in leaves:
            if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
                raise TypeError(f"expected arrays of floats, got {jnp.result_type(leaf)}")
        self._owner = owner
        self._options = (every, quorum, grace)
        # Optax takes longer to import than all else here.
        rule = outer or import_module("optax").sgd(0.7, momentum=0.9, nesterov=True)
        cuts = _cut([np.asarray(leaf) for leaf in leaves], fragments)
        names = list(devices or [""])
        with without_creators():  # of a strategy, which would divide fragments
            self._parts = [
                (Fragment([leaves[i] for i in cut], f"{prefix}/{n}", on, rule), cut)
                for n, (cut, on) in enumerate(zip(cuts, cycle(names), strict=False))
            ]
            joined = bind({"joined": np.zeros((), np.int32)}, f"{prefix}/learners", names[0])
        (count,) = joined.variables.values()
        assert isinstance(count, Variable)
        self._join = Function(lambda: count.assign_add(1))

    def join(self) -> Learner:
        """Returns a learner, which has the merged values."""
        number = int(self._run(self._join)) % N_LEARNERS
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

    def saved_state(self) -> Any:
        """Returns what `jflow.checkpoint` saves: all variables."""
        return {str(n): fragment.state for n, (fragment, _) in enumerate(self._parts)}

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
