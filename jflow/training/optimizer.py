"""Optax optimizers on graph variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax

from jflow.graph import Operation, Tensor, colocate_with, control_dependencies, name_scope
from jflow.ops import Variable, group


class GradientTransformation(Protocol):
    """The interface of an Optax optimizer."""

    @property
    def init(self) -> Any:
        """Function from parameters to the initial state."""

    @property
    def update(self) -> Any:
        """Function from gradients, state and parameters to updates and the next state."""


def apply_optimizer(
    optimizer: GradientTransformation,
    grads: Sequence[Tensor],
    variables: Sequence[Variable],
    name: str,
) -> Operation:
    """Returns an operation that updates variables by their gradients.

    The optimizer's state is kept in variables, colocated with those they belong to. One computation
    on the device of the first variable makes all updates, because they may depend on all gradients.

    Args:
      optimizer: the optimizer.
      grads: a gradient for each variable; variables are read after all gradients were computed.
      variables: the variables.
      name: scope of the operations.
    """

    def apply(fun: Any, *args: Any) -> Any:
        with colocate_with(variables[0], ignore_existing=True):
            return variables[0].graph.apply(fun, args)

    def update(grads: Any, state: Any, params: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(grads, state, params)
        return jax.tree.map(lambda p, u: (p + u).astype(p.dtype), params, updates), state

    with name_scope(name), control_dependencies(None):
        initial = apply(optimizer.init, [variable.initial_value for variable in variables])
        state = _state_variables(initial, variables)
        with control_dependencies(grads):
            params = [variable.read_value() for variable in variables]
            old_state = jax.tree.map(lambda slot: slot.read_value(), state)
        new = apply(update, list(grads), old_state, params)
        slots = [*variables, *jax.tree.leaves(state)]
        values = jax.tree.leaves(new)
        return group(*(slot.assign(x) for slot, x in zip(slots, values, strict=True)))


def _state_variables(initial: Any, variables: Sequence[Variable]) -> Any:
    """Creates variables for an optimizer's state.

    A leaf that belongs to one variable, by its index and shape, is colocated with and named after
    it; any other leaf, with the first variable.
    """

    def make(path: tuple[Any, ...], value: Tensor) -> Variable:
        *way, last = path
        index = getattr(last, "idx", -1)
        is_own = 0 <= index < len(variables) and value.shape == variables[index].shape
        owner = variables[index] if is_own else variables[0]
        name = jax.tree_util.keystr(tuple(way) if is_own else path, simple=True, separator="_")
        with name_scope(f"{owner.op.name}/"), colocate_with(owner, ignore_existing=True):
            return Variable(value, trainable=False, name=name or "state")

    return jax.tree_util.tree_map_with_path(make, initial)
