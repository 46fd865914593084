"""The update of variables and optimizer state by gradients, for graph and eager variables.

Each value is computed on the device of its variable (`locality.py`). Of a variable whose
gradient is some rows, only these rows are read and written, also in its slots (`rows.py`). How a
variable is read and where an equation runs is up to an `UpdateFace`: operations of a graph
(`graph_update.py`), or programs with exclusive access to eager variables (`eager_update.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from jflow.client.ops import IndexedSlices, Variable
from jflow.client.ops.variable import on_device_of
from jflow.compiler.graph import Symbolic
from jflow.training.optimizers.locality import SHARED, LocalComputation, OwnerIndex
from jflow.training.optimizers.rows import RowSums, sum_rows, with_rows
from jflow.training.optimizers.rule import Rule


class UpdateFace(Protocol):
    """What differs between the update of a graph's variables and that of eager ones."""

    def apply(self, fun: Callable[..., Any], *args: Any, name: str) -> Any:
        """Returns the result of a function of arrays and static integers."""

    def named(self, owner: OwnerIndex) -> AbstractContextManager[Any]:
        """Returns a block whose operations are named after the variable that they update.

        Args:
          owner: its index, or `SHARED` for state of all variables.
        """

    def after(self, grads: Sequence[Any]) -> AbstractContextManager[Any]:
        """Returns a block whose reads of variables follow the gradients."""

    def argument(self, leaf: Any, rows: RowSums | None) -> Any:
        """Returns an argument of the update, with `shape` and `aval`.

        Args:
          leaf: a variable, a gradient or a number.
          rows: those to read of a variable; None for all of it.
        """

    def evaluate(
        self,
        computation: LocalComputation,
        arguments: Sequence[Any],
        grads: Sequence[Any],
        written: Sequence[Variable],
    ) -> list[Any]:
        """The results of a computation, each of whose calls runs on the device of its variable.

        Args:
          computation: computes the new values of `written`.
          arguments: its arguments, as `argument` returned them.
          grads: the gradients, one for each variable that is trained.
          written: what the results are assigned to. A result may be None if it is the old value.
        """


@dataclass(frozen=True)
class TrainedState:
    """Variables that are trained together, and the optimizer's state for them.

    Attributes:
      params: the variables; shards are variables of their own.
      tree, leaves: the state.
      owners: the index of the variable that each leaf belongs to, or `SHARED`.
    """

    params: list[Variable]
    tree: jax.tree_util.PyTreeDef
    leaves: list[Variable]
    owners: list[OwnerIndex]


def apply_update(
    face: UpdateFace,
    rule: Rule,
    state: TrainedState,
    grads: Sequence[Any],
    inputs: Mapping[str, Any],
) -> list[Any]:
    """Updates variables and the state of their optimizer by gradients.

    Args:
      face: the operations on these variables.
      rule: computes the new values.
      state: the variables and the state.
      grads: a gradient for each variable, of its shape; some may be `IndexedSlices`.
      inputs: the arguments of `rule.next`.

    Returns:
      The result of each assignment.
    """
    sums = _row_sums(face, rule, state.params, grads)
    whole = [
        sums[i].grads if i in sums else _dense(grad, state.params[i])
        for i, grad in enumerate(grads)
    ]
    written = state.params + state.leaves
    owners = [*range(len(state.params)), *state.owners]
    rows = {x: sums[owner] for x, owner in zip(written, owners, strict=True) if owner in sums}
    with face.after(whole):
        args = [whole, jax.tree.unflatten(state.tree, state.leaves), state.params, dict(inputs)]
        leaves, in_tree = jax.tree.flatten(args)
        owner_at = dict(zip(written, owners, strict=True))
        arguments = []
        for leaf in leaves:
            is_variable = isinstance(leaf, Variable)
            with face.named(owner_at[leaf] if is_variable else SHARED):
                arguments.append(face.argument(leaf, rows.get(leaf) if is_variable else None))
        args = jax.tree.unflatten(in_tree, arguments)
        computation = LocalComputation.trace(rule.next, args, [x.shape for x in args[2]])
        new = face.evaluate(computation, arguments, whole, written)
        # A variable and its slots one after the other: XLA then reads them together as well.
        in_order = sorted(zip(owners, written, new, strict=True), key=lambda one: one[0])
        results = []
        for owner, variable, value in in_order:
            if value is not None:
                with face.named(owner):
                    results.append(_write(variable, value, rows.get(variable)))
        return results


def _row_sums(
    face: UpdateFace, rule: Rule, params: Sequence[Variable], grads: Sequence[Any]
) -> dict[int, RowSums]:
    """The rows to update, without duplicates, for each variable that can be updated by row."""
    if not any(isinstance(grad, IndexedSlices) for grad in grads):
        return {}
    sums = {}
    by_row = rule.are_row_wise(params)
    for i, (grad, param) in enumerate(zip(grads, params, strict=True)):
        if isinstance(grad, IndexedSlices) and by_row[i] and param.constraint is None:
            with on_device_of(param):
                args = (grad.values, grad.indices, param.shape[0])
                sums[i] = RowSums(*face.apply(sum_rows, *args, name="summed_rows"))
    return sums


def _dense(grad: Any, param: Variable) -> Any:
    if not isinstance(grad, Symbolic):
        return grad
    with on_device_of(param):
        return grad.to_tensor()


def _write(variable: Variable, value: Any, rows: RowSums | None) -> Any:
    with on_device_of(variable):
        if rows is not None:
            return variable.update(with_rows, rows.indices, value, name="put_rows")
        return variable.assign(variable.constraint(value) if variable.constraint else value)
