"""A Keras optimizer as the rule of an update: each slot belongs to a variable of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from jflow.client.ops import Variable
from jflow.training.optimizers.locality import owner_of
from jflow.training.optimizers.update import TrainedState


class KerasRule:
    """Computes what a Keras optimizer makes of variables and of its state; pure.

    A variable of the optimizer is a slot of the variable of the model whose shape and name it has;
    all others, such as the count of updates, are shared. It only decides where they are computed.

    Args:
      optimizer: one that is built.
      variables: the trainable variables of the model, those of Keras.
      paths: the paths of these variables.

    Attributes:
      paths: the path of each variable of the optimizer: that of its variable and its own name.
      owners: the index of the variable that each one belongs to; None if it is shared.
    """

    def __init__(self, optimizer: Any, variables: Sequence[Any], paths: Sequence[str]) -> None:
        self._optimizer = optimizer
        self.paths: list[str] = []
        self.owners: list[int | None] = []
        prefixes = [variable.path.replace("/", "_") + "_" for variable in variables]
        shared: dict[str, int] = {}
        none: list[int | None] = [None] * len(variables)
        slots: dict[str, list[int | None]] = {}
        for number, own in enumerate(optimizer.variables):
            found = [
                i
                for i, prefix in enumerate(prefixes)
                if own.name.startswith(prefix)
                and own.shape == variables[i].shape
                and slots.get(own.name.removeprefix(prefix), none)[i] is None
            ]
            owner = max(found, key=lambda i: len(prefixes[i]), default=None)
            self.owners.append(owner)
            if owner is None:
                shared[str(number)] = number
                self.paths.append(
                    own.name if own.name not in self.paths else f"{own.name}_{number}"
                )
            else:
                slot = own.name.removeprefix(prefixes[owner])
                slots.setdefault(slot, [*none])[owner] = number
                self.paths.append(f"{paths[owner]}/{slot}")
        self._numbers, self._tree = jax.tree.flatten({"shared": shared, "slots": slots})

    def trained(self, params: Sequence[Variable], state: Sequence[Variable]) -> TrainedState:
        """Returns variables of jflow that are updated together.

        Args:
          params: one for each trainable variable of the model.
          state: one for each variable of the optimizer.
        """
        leaves = [state[number] for number in self._numbers]
        shapes = [param.shape for param in params]
        tree = jax.tree.unflatten(self._tree, leaves)
        owners = [owner_of(path, leaf, shapes) for path, leaf in jax.tree.leaves_with_path(tree)]
        return TrainedState(list(params), self._tree, leaves, owners)

    def next(self, grads: Any, state: Any, params: Any, inputs: Mapping[str, Any]) -> Any:
        """Returns the new parameters and state."""
        del inputs
        leaves = dict(zip(self._numbers, jax.tree.leaves(state), strict=True))
        values = [leaves[number] for number in range(len(leaves))]
        params, values = self._optimizer.stateless_apply(values, grads, params)
        return params, jax.tree.unflatten(self._tree, [values[i] for i in self._numbers])

    def are_row_wise(self, variables: Sequence[Variable]) -> list[bool]:
        """Returns that none is updated by row: optimizers of Keras update whole variables."""
        return [False] * len(variables)

    @contextmanager
    def collecting(self) -> Iterator[list[Any]]:
        """A block in which the optimizer updates nothing; yields the gradients that it is given."""
        collected: list[Any] = []

        def collect(state: Any, grads: Any, params: Any) -> Any:
            collected.append(grads)
            return params, state

        self._optimizer.stateless_apply = collect
        try:
            yield collected
        finally:
            del self._optimizer.stateless_apply
