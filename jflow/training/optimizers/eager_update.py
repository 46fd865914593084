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
from typing import Any, TypeVar

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
from jflow.training.optimizers.rows import RowGradient, RowSums, as_pytree, rows_at, shards_of
from jflow.training.optimizers.rule import Rule, UpdateRule
from jflow.training.optimizers.slots import SlotTable, sharding_of_slot, slot_key
from jflow.training.optimizers.update import TrainedState, apply_update

T = TypeVar("T")


def update_eager(
    rule: Rule, state: TrainedState, grads: Sequence[Any], inputs: Mapping[str, Any] | None = None
) -> None:
    """Updates eager variables by gradients, in a function; the arguments are of `apply_update`."""
    leaves = zip(state.leaves, state.owners, strict=True)
    shared = next((leaf for leaf, owner in leaves if owner == SHARED), state.params[0])
    apply_update(_EagerFace(state.params, shared), rule, state, grads, inputs or {})


class EagerUpdates:
    """The updates of eager variables by an optimizer.

    Each slot is a variable on the device, in the container and below the name of the variable that
    it belongs to; what belongs to none is with the first one. Updates of other variables make
    further slots, and share what there is. Shards are variables of their own.

    Args:
      rule: computes the new values.
      table: gets the variables of the state.
      name: the name of the optimizer, which the names of the slots contain.
      first: an eager variable, sharded or not, whose device has the count.

    Attributes:
      iterations: the count of updates, int32[].
    """

    def __init__(self, rule: UpdateRule, table: SlotTable, name: str, first: VariableLike) -> None:
        param = shards_of(first)[0]
        self._owner: Any = param.operations.ref.owner
        self._rule = rule
        self._table = table
        self._name = name
        self._variables: list[VariableLike] = []
        self._programs: dict[tuple[VariableLike, ...], Callable[..., Any]] = {}
        self.iterations = _outside_of_traces(
            lambda: self._variable(param, np.int32(0), "iterations")
        )

    def build(self, variables: Sequence[VariableLike]) -> None:
        """Makes the state for variables, as far as it is not there."""
        key = tuple(variables)
        if key not in self._programs:
            shards = [shard for variable in variables for shard in shards_of(variable)]
            state = _outside_of_traces(lambda: self._state_of(shards))
            self._programs[key] = function(
                lambda grads, inputs: self._apply(key, state, grads, inputs)
            )
            self._variables += [v for v in variables if v not in self._variables]

    def update(self, variables: Sequence[VariableLike], grads: Sequence[Any]) -> Any:
        """Updates variables and their state by gradients.

        Args:
          variables: the variables.
          grads: a gradient for each variable, of its shape: an array, or an `IndexedSlices`.

        Returns:
          int32[], the count of updates with this one.
        """
        self.build(variables)
        with owners.owned_by(self._owner):
            program = self._programs[tuple(variables)]
            return program([*map(as_pytree, grads)], self._rule.inputs())

    def _apply(
        self, variables: Sequence[VariableLike], state: TrainedState, grads: list[Any], inputs: Any
    ) -> Any:
        """Updates variables, in a function; returns the count."""
        with jax.named_scope(self._name):
            pieces = _pieces(variables, state.params, grads)
            update_eager(self._rule, state, pieces, inputs)
            first = pieces[0]
            return self.iterations.update(
                _increment, first.values if isinstance(first, IndexedSlices) else first
            )

    def _state_of(self, params: list[Variable]) -> TrainedState:
        init = self._rule.init
        shapes = [v.shape for v in params]
        leaves, tree = self._rule.state_of(params)
        owners_of = [owner_of(path, leaf, shapes) for path, leaf in leaves]
        keys = [slot_key(path, leaf, params) for path, leaf in leaves]

        def creator(number: int) -> Callable[[Variable, str], Variable]:
            def initial() -> Any:
                return jax.tree.leaves(init([v.value() for v in params]))[number]

            return lambda param, name: self._variable(param, initial, name)

        for number, (key, (path, _)) in enumerate(zip(keys, leaves, strict=True)):
            if key not in self._table.by_key:
                self._table.add(key, path, owners_of[number], params, creator(number))
        return TrainedState(params, tree, [self._table.by_key[key] for key in keys], owners_of)

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
        for number, variable in enumerate(self._variables):
            for shard in shards_of(variable):
                for name, slot in self._table.slots.get(shard, {}).items():
                    slots.setdefault(f"{number}/{name}", []).append(slot)
        own = {key: each if len(each) > 1 else each[0] for key, each in slots.items()}
        return {
            "iterations": self.iterations,
            "shared": dict(enumerate(self._table.shared)),
            "slots": own,
        }


def _outside_of_traces(make: Callable[[], T]) -> T:
    """Makes state, which is no part of what JAX may be tracing here: it traces by thread."""
    if not internals.is_tracing():
        return make()
    with ThreadPoolExecutor(1) as other_thread:
        return other_thread.submit(make).result()


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

    def __init__(self, params: Sequence[Variable], shared: Variable) -> None:
        self._params = params
        self._shared = shared

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
            is_shared = call.owner == SHARED
            place = self._shared if is_shared else self._params[call.owner]
            before = [grads[max(call.owner, 0)], *(known[x] for x in call.inputs if x in known)]
            with self.named(call.owner), on_device_of(place):
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
