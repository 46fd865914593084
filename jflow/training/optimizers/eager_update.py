"""Updates of eager variables by an Optax optimizer, whose state is beside them.

Everything about one variable, its new value and its slots, is computed where it lives, in one
program that has exclusive access to them, once the gradient is there. So updates of several workers
follow each other and none is lost; between variables there is no order. Only an optimizer that
computes something of all variables after it has used their slots needs two such programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jflow.client.functions import function
from jflow.client.ops import IndexedSlices, Variable
from jflow.client.ops.creators import without_creators
from jflow.client.ops.variable import VariableLike
from jflow.client.variables import ShardedVariable
from jflow.client.variables.beside import beside
from jflow.compiler.graph import container, name_scope, owners, request
from jflow.plan.xla import internals
from jflow.plan.xla.jaxprs import open_calls, shape_of
from jflow.training.optimizers.locality import (
    SHARED,
    OwnerIndex,
    Shapes,
    field_of,
    local_calls,
    owner_of,
    slice_of,
)
from jflow.training.optimizers.rows import (
    RowGradient,
    RowSums,
    are_row_wise,
    as_pytree,
    rows_at,
    sum_rows,
    with_rows,
)


class EagerSlots:
    """The state of an optimizer that trains eager variables.

    Each slot is a variable on the device, in the container and below the name of the variable that
    it belongs to; what belongs to none is beside the first one. Shards are variables of their own.

    Args:
      init: makes the state for parameters.
      next_of: computes new parameters and state of gradients, state, parameters and learning rate.
      variables: the eager variables, sharded or not.
      name: the name of the optimizer, which the names of the slots contain.

    Attributes:
      iterations: the count of updates, int32[].
      slots: the slots of each variable or shard, by name.
      shared: the variables of the rest of the state.
    """

    def __init__(
        self,
        init: Callable[[Any], Any],
        next_of: Callable[..., Any],
        variables: Sequence[VariableLike],
        name: str,
    ) -> None:
        self.variables = tuple(variables)
        self._params = _shards(variables)
        self._owner: Any = self._params[0].operations.ref.owner
        self._init, self._next_of = init, next_of
        self._applied = function(self._apply)
        self._name = name
        self.slots: dict[Variable, dict[str, Variable]] = {}
        self.shared: list[Variable] = []
        if internals.is_tracing():
            # JAX traces by thread, and what is made here is no part of what it traces.
            with ThreadPoolExecutor(1) as other_thread:
                other_thread.submit(self._make).result()
        else:
            self._make()

    def _make(self) -> None:
        shapes = [v.shape for v in self._params]
        avals = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in self._params]
        leaves, self._tree = jax.tree_util.tree_flatten_with_path(jax.eval_shape(self._init, avals))
        self._owners = [owner_of(path, leaf, shapes) for path, leaf in leaves]
        self._leaves = [self._slot(number, path) for number, (path, _) in enumerate(leaves)]
        self.iterations = self._variable(self._params[0], np.int32(0), "iterations")

    def _slot(self, number: int, path: tuple[Any, ...]) -> Variable:
        owner = self._owners[number]
        way = path if owner == SHARED else path[:-1]
        param = self._params[max(owner, 0)]

        def initial() -> Any:
            return jax.tree.leaves(self._init([v.value() for v in self._params]))[number]

        name = jax.tree_util.keystr(way, simple=True, separator="_") or "state"
        made = self._variable(param, initial, name)
        made.save_slice_info = slice_of(made, param)
        if owner == SHARED:
            self.shared.append(made)
        else:
            own = self.slots.setdefault(param, {})
            own[field_of(way) if field_of(way) not in own else name] = made
        return made

    def _variable(self, param: Variable, initial: Any, name: str) -> Variable:
        ref = param.operations.ref
        with (
            without_creators(),
            owners.owned_by(self._owner),
            beside(param),
            container(ref.container),
            name_scope(None),
        ):
            return Variable(initial, trainable=False, name=f"{ref.name}/{self._name}/{name}")

    def saved_state(self) -> dict[str, Any]:
        """The variables of the state by what they are; slots by the number of their variable."""
        slots: dict[str, list[Variable]] = {}
        for number, variable in enumerate(self.variables):
            for shard in _shards([variable]):
                for name, slot in self.slots.get(shard, {}).items():
                    slots.setdefault(f"{number}/{name}", []).append(slot)
        own = {key: found if len(found) > 1 else found[0] for key, found in slots.items()}
        return {"iterations": self.iterations, "shared": dict(enumerate(self.shared)), "slots": own}

    def apply(self, grads: Sequence[Any], rate: Any) -> Any:
        """Updates the variables and the state by gradients.

        Args:
          grads: a gradient for each variable, of its shape: an array, or an `IndexedSlices`.
          rate: the learning rate, None if `next_of` needs none.

        Returns:
          int32[], the count of updates with this one.
        """
        with owners.owned_by(self._owner):
            return self._applied([*map(as_pytree, grads)], rate)

    def _apply(self, grads: list[Any], rate: Any) -> Any:
        pieces = [*map(self._summed, self._params, _pieces(self.variables, grads))]
        rows = {i: one.indices for i, one in enumerate(pieces) if isinstance(one, RowSums)}
        whole = [one.grads if isinstance(one, RowSums) else one for one in pieces]
        written = zip(
            self._params + self._leaves, [*range(len(pieces)), *self._owners], strict=True
        )
        computed = self._computed(whole, rows, rate)
        for (variable, owner), value in zip(written, computed, strict=True):
            if value is None:
                continue
            with beside(variable):
                if owner in rows:
                    variable.update(with_rows, rows[owner], value)
                else:
                    variable.assign(variable.constraint(value) if variable.constraint else value)
        return self.iterations.update(_increment, whole[0])

    def _summed(self, param: Variable, piece: Any) -> Any:
        """The rows of a gradient that occur, each once; a whole gradient where that is needed."""
        if not isinstance(piece, RowGradient):
            return piece
        by_row = self._by_row[param] and param.constraint is None
        with beside(param):
            if by_row:
                summed = jax.jit(sum_rows, static_argnums=2)(*piece, param.shape[0])
                return RowSums(*summed)
            return IndexedSlices(*piece, param.shape).to_tensor()

    @cached_property
    def _by_row(self) -> dict[Variable, bool]:
        found = are_row_wise(self._init, self._params, owner_of)
        return dict(zip(self._params, found, strict=True))

    def _computed(self, grads: list[Any], rows: Mapping[int, Any], rate: Any) -> list[Any]:
        """New values of parameters and state, each computed beside its variable; None for the old.

        A variable is read by an update that waits for all else that is computed with it. So it is
        read in the program that assigns it, unless others need something of it before.

        Args:
          grads: the gradients, of some only the rows that occur.
          rows: which these rows are, by the index of the parameter. Of it and its state only the
            same rows are read and computed.
          rate: the learning rate.
        """
        shapes = [v.shape for v in self._params]
        args = [grads, jax.tree.unflatten(self._tree, self._leaves), self._params, rate]
        leaves, in_tree = jax.tree_util.tree_flatten_with_path(args)
        sizes = {i: grads[i].shape for i in rows}
        avals = [_aval_of_rows(path, leaf, shapes, sizes) for path, leaf in leaves]
        shapes = [grad.shape for grad in grads]
        traced, results = _traced(self._next_of, in_tree, avals, shapes)
        arguments = [
            owner_of(path, aval, shapes) for (path, _), aval in zip(leaves, avals, strict=True)
        ]
        given = dict(zip(traced.jaxpr.invars, (leaf for _, leaf in leaves), strict=True))
        known = {x: jnp.asarray(v) for x, v in given.items() if not isinstance(v, Variable)}
        owners_of = dict(zip(traced.jaxpr.invars, arguments, strict=True))

        def read(x: jex.Var, *before: jax.Array) -> jax.Array:
            value: jax.Array = given[x].update(_same, *before)
            return rows_at(value, rows[owners_of[x]]) if owners_of[x] in rows else value

        for call in local_calls(traced, arguments, results):
            place = max(call.owner, 0)
            before = [grads[place], *(known[x] for x in call.inputs if x in known)]
            with beside(self._params[place]):
                for x in call.inputs:
                    known[x] = known[x] if x in known else read(x, *before)
                compiled = jax.jit(jex.jaxpr_as_fun(call.program))
                found = compiled(*(known[x] for x in call.inputs))
            known.update(zip(call.outputs, found, strict=True))
        new: list[Any] = []
        for variable, x in zip((*self._params, *self._leaves), traced.jaxpr.outvars, strict=True):
            if isinstance(x, jex.Literal):
                new.append(x.val)
            elif x in known:
                new.append(known[x])
            else:  # an old value
                is_own = given[x] is variable
                new.append(None if is_own else read(x, grads[0]))
        return new


def _traced(
    next_of: Callable[..., Any], in_tree: Any, avals: Sequence[Any], shapes: Shapes
) -> tuple[jex.ClosedJaxpr, list[OwnerIndex]]:
    """The equations of an update, and the owners of its results."""
    results: list[OwnerIndex] = []

    def flat(*given: Any) -> list[Any]:
        found = next_of(*jax.tree.unflatten(in_tree, given))
        out = jax.tree_util.tree_leaves_with_path(found)
        results.extend(owner_of(path, leaf, shapes) for path, leaf in out)
        return [leaf for _, leaf in out]

    with request.empty_request_scope():
        return open_calls(jax.make_jaxpr(flat)(*avals)), results


def _aval_of_rows(
    path: tuple[Any, ...], leaf: Any, shapes: Shapes, sizes: Mapping[int, tuple[int, ...]]
) -> Any:
    """The type of an argument of an update; of some parameters and their state, that of rows."""
    owner = owner_of(path, leaf, shapes) if isinstance(leaf, Variable) else SHARED
    if owner in sizes:
        return jax.ShapeDtypeStruct(sizes[owner], leaf.dtype)
    return _aval(leaf)


def _aval(leaf: Any) -> Any:
    if isinstance(leaf, Variable):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    return shape_of(jax.typeof(jnp.asarray(leaf)))


def _same(old: jax.Array, *_: jax.Array) -> jax.Array:
    return old


def _increment(old: jax.Array, _: jax.Array) -> jax.Array:
    return old + 1


def _shards(variables: Sequence[VariableLike]) -> list[Variable]:
    found: list[Variable] = []
    for variable in variables:
        shards = variable.variables if isinstance(variable, ShardedVariable) else [variable]
        found.extend(shard for shard in shards if isinstance(shard, Variable))
    return found


def _pieces(variables: Sequence[VariableLike], grads: Sequence[Any]) -> list[Any]:
    """The gradient of each variable or shard.

    Each shard has all rows of a gradient that is rows. Those of other shards are out of its range.
    """
    found: list[Any] = []
    for variable, grad in zip(variables, grads, strict=True):
        if not isinstance(variable, ShardedVariable):
            found.append(grad if isinstance(grad, RowGradient) else jnp.asarray(grad))
            continue
        ends = [0, *accumulate(shard.shape[0] for shard in variable)]
        if isinstance(grad, RowGradient):
            at = jnp.asarray(grad.indices)
            found.extend(RowGradient(grad.values, at - start) for start in ends[:-1])
        else:
            found.extend(jnp.asarray(grad)[start:end] for start, end in pairwise(ends))
    return found
