"""The update of eager variables: programs, each with exclusive access to what it writes.

Everything about one variable, its new value and its slots, is computed where it lives, in one
program that has exclusive access to them, once the gradient is there. So updates of several workers
follow each other and none is lost; between variables there is no order. Only an optimizer that
computes something of all variables after it has used their slots needs two such programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jflow.client.functions import function
from jflow.client.ops import IndexedSlices, Variable
from jflow.client.ops.creators import without_creators
from jflow.client.ops.variable import VariableLike, on_device_of
from jflow.client.variables import ShardedVariable
from jflow.client.variables.partitioners import split
from jflow.compiler.graph import container, name_scope, owners
from jflow.plan.xla import internals
from jflow.training.optimizers.locality import (
    SHARED,
    LocalComputation,
    OwnerIndex,
    compiled,
    owner_of,
)
from jflow.training.optimizers.rows import RowGradient, RowSums, as_pytree, rows_at
from jflow.training.optimizers.rule import Rule, UpdateRule
from jflow.training.optimizers.slots import SlotTable, sharding_of_slot
from jflow.training.optimizers.update import TrainedState, apply_update


def update_eager(
    rule: Rule, state: TrainedState, grads: Sequence[Any], inputs: Mapping[str, Any] | None = None
) -> None:
    """Updates eager variables by gradients, in a function; the arguments are of `apply_update`."""
    apply_update(_EagerFace(state.params), rule, state, grads, inputs or {})


class EagerUpdates:
    """The updates of eager variables by an optimizer, whose state is created with this.

    Each slot is a variable on the device, in the container and below the name of the variable that
    it belongs to; what belongs to none is with the first one. Shards are variables of their own.

    Args:
      rule: computes the new values.
      table: gets the variables of the state.
      variables: the eager variables, sharded or not.
      name: the name of the optimizer, which the names of the slots contain.

    Attributes:
      variables: the argument.
      iterations: the count of updates, int32[].
    """

    def __init__(
        self, rule: UpdateRule, table: SlotTable, variables: Sequence[VariableLike], name: str
    ) -> None:
        self.variables = tuple(variables)
        self._params = _shards(variables)
        self._owner: Any = self._params[0].operations.ref.owner
        self._rule = rule
        self._table = table
        self._name = name
        self._function = function(self._update)
        if internals.is_tracing():
            # JAX traces by thread, and the state is no part of what it traces.
            with ThreadPoolExecutor(1) as other_thread:
                self._state = other_thread.submit(self._create_state).result()
        else:
            self._state = self._create_state()

    def _create_state(self) -> TrainedState:
        params, init = self._params, self._rule.init
        shapes = [v.shape for v in params]
        leaves, tree = self._rule.state_of(params)
        owners_of = [owner_of(path, leaf, shapes) for path, leaf in leaves]

        def creator(number: int) -> Callable[[Variable, str], Variable]:
            def initial() -> Any:
                return jax.tree.leaves(init([v.value() for v in params]))[number]

            return lambda param, name: self._variable(param, initial, name)

        slots = [
            self._table.add(path, owners_of[number], params, creator(number))
            for number, (path, _) in enumerate(leaves)
        ]
        self.iterations = self._variable(params[0], np.int32(0), "iterations")
        return TrainedState(params, tree, slots, owners_of)

    def _variable(self, param: Variable, initial: Any, name: str) -> Variable:
        ref = param.operations.ref
        with (
            without_creators(),
            owners.owned_by(self._owner),
            on_device_of(param),
            container(ref.container),
            name_scope(None),
        ):
            shape = jax.eval_shape(initial).shape if callable(initial) else np.shape(initial)
            return Variable(
                initial,
                trainable=False,
                name=f"{ref.name}/{self._name}/{name}",
                sharding=sharding_of_slot(param, shape),
            )

    def saved_state(self) -> dict[str, Any]:
        """Returns the variables of the state; slots by the number of their variable and by name."""
        slots: dict[str, list[Variable]] = {}
        for number, variable in enumerate(self.variables):
            for shard in _shards([variable]):
                for name, slot in self._table.slots.get(shard, {}).items():
                    slots.setdefault(f"{number}/{name}", []).append(slot)
        own = {key: each if len(each) > 1 else each[0] for key, each in slots.items()}
        return {
            "iterations": self.iterations,
            "shared": dict(enumerate(self._table.shared)),
            "slots": own,
        }

    def update(self, grads: Sequence[Any]) -> Any:
        """Updates the variables and the state by gradients.

        Args:
          grads: a gradient for each variable, of its shape: an array, or an `IndexedSlices`.

        Returns:
          int32[], the count of updates with this one.
        """
        with owners.owned_by(self._owner):
            return self._function([*map(as_pytree, grads)], self._rule.inputs())

    def _update(self, grads: list[Any], inputs: Any) -> Any:
        with jax.named_scope(self._name):
            pieces = _pieces(self.variables, self._params, grads)
            update_eager(self._rule, self._state, pieces, inputs)
            first = pieces[0]
            return self.iterations.update(
                _increment, first.values if isinstance(first, IndexedSlices) else first
            )


@dataclass(frozen=True)
class _Unread:
    """A variable, or some rows of it, that the program that assigns it reads.

    Attributes:
      variable: the variable.
      rows: the rows; None for all.
      aval: the type of its value.
    """

    variable: Variable
    rows: RowSums | None
    aval: jax.ShapeDtypeStruct

    @property
    def shape(self) -> Any:
        return self.aval.shape

    def read(self, before: Sequence[Any]) -> Any:
        """Reads the value by an update that depends on what is computed before."""
        value = self.variable.update(_same, *before)
        return value if self.rows is None else rows_at(value, self.rows.indices)


class _EagerFace:
    """The programs of one update; see `UpdateFace`.

    A variable is read by an update that waits for all else that is computed with it. So it is read
    in the program that assigns it, unless others need something of it before.
    """

    def __init__(self, params: Sequence[Variable]) -> None:
        self._params = params

    def apply(self, fun: Callable[..., Any], *args: Any, name: str) -> Any:
        static = [i for i, each in enumerate(args) if isinstance(each, int)]
        return jax.jit(fun, static_argnums=static)(*args)

    def named(self, owner: OwnerIndex) -> AbstractContextManager[Any]:
        if owner == SHARED:
            return nullcontext()
        return jax.named_scope(f"update_{self._params[owner].operations.ref.name}")

    def after(self, _grads: Sequence[Any]) -> AbstractContextManager[Any]:
        return nullcontext()

    def argument(self, leaf: Any, rows: RowSums | None) -> Any:
        if not isinstance(leaf, Variable):
            return jnp.asarray(leaf)
        shape = leaf.shape if rows is None else rows.grads.shape
        return _Unread(leaf, rows, jax.ShapeDtypeStruct(shape, leaf.dtype))

    def evaluate(
        self,
        computation: LocalComputation,
        arguments: Sequence[Any],
        grads: Sequence[Any],
        written: Sequence[Variable],
    ) -> list[Any]:
        by_var = dict(zip(computation.inputs, arguments, strict=True))
        known = {x: value for x, value in by_var.items() if not isinstance(value, _Unread)}
        for call in computation.calls:
            place = max(call.owner, 0)
            before = [grads[place], *(known[x] for x in call.inputs if x in known)]
            with self.named(call.owner), on_device_of(self._params[place]):
                for x in call.inputs:
                    known[x] = known[x] if x in known else by_var[x].read(before)
                outputs = compiled(call.program)(*(known[x] for x in call.inputs))
            known.update(zip(call.outputs, outputs, strict=True))
        new: list[Any] = []
        for variable, x in zip(written, computation.outputs, strict=True):
            if isinstance(x, jex.Literal):
                new.append(x.val)
            elif x in known:
                new.append(known[x])
            else:  # an old value
                is_own = by_var[x].variable is variable
                new.append(None if is_own else by_var[x].read([grads[0]]))
        return new


def _same(old: jax.Array, *_: jax.Array) -> jax.Array:
    return old


def _increment(old: jax.Array, _: jax.Array) -> jax.Array:
    return old + 1


def _shards(variables: Sequence[VariableLike]) -> list[Variable]:
    shards: list[Variable] = []
    for variable in variables:
        parts = variable.variables if isinstance(variable, ShardedVariable) else [variable]
        shards.extend(part for part in parts if isinstance(part, Variable))
    return shards


def _pieces(
    variables: Sequence[VariableLike], params: Sequence[Variable], grads: Sequence[Any]
) -> list[Any]:
    """Returns the gradient of each variable or shard, arrays or `IndexedSlices`.

    Each shard has all rows of a gradient that is rows. Those of other shards are out of its range.
    """
    pieces: list[Any] = []
    for variable, grad in zip(variables, grads, strict=True):
        is_rows = isinstance(grad, RowGradient)
        if not isinstance(variable, ShardedVariable):
            pieces.append(grad if is_rows else jnp.asarray(grad))
            continue
        sizes = [shard.shape[0] for shard in variable]
        if is_rows:
            at, starts = jnp.asarray(grad.indices), [*accumulate(sizes, initial=0)][:-1]
            pieces.extend(RowGradient(grad.values, at - start) for start in starts)
        else:
            pieces.extend(split(jnp.asarray(grad), sizes))
    return [
        IndexedSlices(*piece, param.shape) if isinstance(piece, RowGradient) else piece
        for piece, param in zip(pieces, params, strict=True)
    ]
