"""Gradients of a loss, a function without arguments, by the eager variables that it uses.

The loss is traced once. Where it takes rows of a variable only, the derivative by these rows is the
gradient, as for graphs (`graph/row_gathers.py`); else it is that by the value. Zeros are added to
rows and values, and the derivative is by these zeros, so that a variable is read where and when the
loss reads it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp

from jflow.client.functions import function
from jflow.client.ops import IndexedSlices, Variable
from jflow.client.ops.variable import VariableLike
from jflow.compiler.graph import owners
from jflow.compiler.graph.primitives import read_p, state_of
from jflow.compiler.graph.row_gathers import row_indices
from jflow.plan.xla import internals, jaxprs
from jflow.training.optimizers.rows import RowGradient, as_pytree, flat_indices, shards_of


@dataclass(frozen=True)
class _Rows:
    """Where a loss takes rows of a variable.

    Attributes:
      others: what the indices are computed from.
      program, clips: see `RowGather`.
    """

    others: tuple[jex.Var, ...]
    program: jex.ClosedJaxpr
    clips: bool


@dataclass
class _Loss:
    """A traced loss, with an argument for each point by which it is differentiated.

    Attributes:
      points: the arguments, of which each is zeros that are added to a value.
      of: the references of the variables that the points belong to.
      rows: where a point is some rows; None where it is the whole variable.
    """

    eqns: list[jex.JaxprEqn] = field(default_factory=list)
    points: list[jex.Var] = field(default_factory=list)
    of: list[Any] = field(default_factory=list)
    rows: list[_Rows | None] = field(default_factory=list)

    def add(self, eqn: jex.JaxprEqn, ref: Any, rows: _Rows | None) -> None:
        """Adds an equation and a point that is added to its result."""
        (result,) = eqn.outvars
        before, point = jex.Var(result.aval), jex.Var(result.aval)
        self.points.append(point)
        self.of.append(ref)
        self.rows.append(rows)
        shape = jaxprs.shape_of(result.aval)
        (added,) = jax.make_jaxpr(jax.lax.add)(shape, shape).jaxpr.eqns
        self.eqns.append(eqn.replace(outvars=[before]))
        self.eqns.append(added.replace(invars=[before, point], outvars=[result]))


def loss_gradients(loss: Callable[[], Any], variables: Sequence[VariableLike]) -> list[Any]:
    """Returns the gradient of a loss by each variable.

    Args:
      loss: returns a real scalar.
      variables: eager variables, sharded or not.

    Returns:
      For each an `IndexedSlices` if the loss takes rows of it only, None if it does not use it, and
      otherwise an array of its shape.

    Raises:
      TypeError: if the loss is not a real scalar.
      ValueError: if it reads one of the variables inside a loop or branch.
    """
    if internals.is_tracing():
        return _traced_gradients(loss, variables)
    owner: Any = shards_of(variables[0])[0].operations.ref.owner
    with owners.owned_by(owner):
        gradients = function(lambda: [*map(as_pytree, _traced_gradients(loss, variables))])()
    return [
        IndexedSlices(*one, variable.shape) if isinstance(one, RowGradient) else one
        for one, variable in zip(gradients, variables, strict=True)
    ]


def _traced_gradients(loss: Callable[[], Any], variables: Sequence[VariableLike]) -> list[Any]:
    traced = jax.make_jaxpr(loss)()
    if [aval.shape for aval in traced.out_avals] != [()]:
        raise TypeError(
            f"expected a loss that returns a scalar, got {', '.join(map(str, traced.out_avals))}"
        )
    shards = [shards_of(variable) for variable in variables]
    refs = [shard.operations.ref for own in shards for shard in own]
    eqns, consts, result = _opened(traced, refs)
    program = _with_points(eqns, refs, result)
    slopes, indices = _differentiated(program, consts, result)
    return [
        _joined(variable, own, program, slopes, indices)
        for variable, own in zip(variables, shards, strict=True)
    ]


def _opened(
    traced: jex.ClosedJaxpr, refs: Sequence[Any]
) -> tuple[list[jex.JaxprEqn], dict[jex.Var, Any], jaxprs.Atom]:
    """The equations of a loss with the calls expanded that read variables, constants and result."""
    eqns: list[jex.JaxprEqn] = []
    consts: dict[jex.Var, Any] = {}

    def constants(closed: jex.ClosedJaxpr) -> list[jex.Var]:
        fresh = [jex.Var(var.aval) for var in closed.jaxpr.constvars]
        consts.update(zip(fresh, closed.consts, strict=True))
        return fresh

    def emit(eqn: jex.JaxprEqn, inputs: list[jaxprs.Atom]) -> Sequence[jaxprs.Atom]:
        if inside := _reads_inside(eqn, refs):
            if eqn.primitive.name != "jit":
                raise ValueError(
                    f"the loss reads {inside[0]} inside a {eqn.primitive.name}; read it before, by "
                    "value(), and use that"
                )
            body = eqn.params["jaxpr"]
            return jaxprs.inline(body.jaxpr, constants(body), inputs, emit)
        outvars = [jex.Var(x.aval) for x in eqn.outvars]
        eqns.append(eqn.replace(invars=inputs, outvars=outvars))
        return outvars

    (result,) = jaxprs.inline(traced.jaxpr, constants(traced), [], emit)
    return eqns, consts, result


def _reads_inside(eqn: jex.JaxprEqn, refs: Sequence[Any]) -> list[Any]:
    """Returns the references, of those given, of variables that the jaxprs of an equation read."""
    reads: list[Any] = []
    for body in jex.jaxprs_in_params(eqn.params):
        for inner in body.eqns:
            reads += [ref for ref in state_of(inner) if ref in refs]
            reads += _reads_inside(inner, refs)
    return reads


def _with_points(eqns: Sequence[jex.JaxprEqn], refs: Sequence[Any], result: Any) -> _Loss:
    """The loss with a point added to each gather of rows, or to the whole value of a variable."""
    read = {eqn.outvars[0]: eqn.params["variable"] for eqn in eqns if eqn.primitive is read_p}
    read = {var: ref for var, ref in read.items() if ref in refs}
    gathers: dict[int, tuple[Any, _Rows]] = {}
    whole = {read[result]} if result in read else set()
    for number, eqn in enumerate(eqns):
        for var in {x for x in eqn.invars if isinstance(x, jex.Var) and x in read}:
            others = [x for x in eqn.invars if isinstance(x, jex.Var) and x is not var]
            by_row = row_indices(eqn, var, others) if jaxprs.shape_of(var.aval).shape else None
            if by_row is None:
                whole.add(read[var])
            else:
                gathers[number] = read[var], _Rows(tuple(others), *by_row)
    program = _Loss()
    for number, eqn in enumerate(eqns):
        ref, rows = gathers.get(number) or (read.get(eqn.outvars[0]) if eqn.outvars else None, None)
        if ref is not None and (rows is None) == (ref in whole):
            program.add(eqn, ref, rows)
        else:
            program.eqns.append(eqn)
    return program


def _differentiated(
    program: _Loss, consts: dict[jex.Var, Any], result: Any
) -> tuple[Any, list[Any]]:
    """Returns the derivatives by the points, and the indices of those that are rows."""
    others = [var for rows in program.rows if rows is not None for var in rows.others]
    closed = jaxprs.close(program.points, [result, *others], program.eqns, consts)

    def scalar(points: list[Any]) -> tuple[Any, list[Any]]:
        value, *inputs_of_rows = jex.jaxpr_as_fun(closed)(*points)
        return value, inputs_of_rows

    avals = [jaxprs.shape_of(point.aval) for point in program.points]
    zeros = [jnp.zeros(aval.shape, aval.dtype) for aval in avals]
    slopes, inputs_of_rows = jax.grad(scalar, has_aux=True)(zeros)
    values = iter(inputs_of_rows)
    indices = []
    for rows in program.rows:
        inputs = [next(values) for _ in rows.others] if rows is not None else []
        indices.append(jex.jaxpr_as_fun(rows.program)(*inputs)[0] if rows is not None else None)
    return slopes, indices


def _joined(
    variable: VariableLike,
    shards: Sequence[Variable],
    program: _Loss,
    slopes: Sequence[Any],
    indices: Sequence[Any],
) -> Any:
    """Returns the gradient of a variable, of those of its shards."""
    own = [_gradient(shard, program, slopes, indices) for shard in shards]
    if len(own) == 1 or all(one is None for one in own):
        return own[0]
    if all(one is None or isinstance(one, IndexedSlices) for one in own):
        starts = [0, *accumulate(shard.shape[0] for shard in shards)]
        parts = [
            (one.values, _moved(one.indices, shard.shape[0], start))
            for one, shard, start in zip(own, shards, starts, strict=False)
            if one is not None
        ]
        values, at = (jnp.concatenate(each) for each in zip(*parts, strict=True))
        return IndexedSlices(values, at, variable.shape)
    return jnp.concatenate([_whole(*pair) for pair in zip(own, shards, strict=True)])


def _gradient(
    shard: Variable, program: _Loss, slopes: Sequence[Any], indices: Sequence[Any]
) -> Any:
    ref = shard.operations.ref
    numbers = [number for number, of in enumerate(program.of) if of == ref]
    if not numbers:
        return None
    if program.rows[numbers[0]] is None:
        return functools.reduce(operator.add, (slopes[number] for number in numbers))
    values, at = [], []
    for number in numbers:
        rows = program.rows[number]
        clips = rows is not None and rows.clips
        at.append(flat_indices(indices[number], shard.shape[0], clips))
        values.append(slopes[number].reshape(-1, *shard.shape[1:]))
    return IndexedSlices(jnp.concatenate(values), jnp.concatenate(at), shard.shape)


def _moved(indices: Any, n_rows: int, start: int) -> Any:
    """Indices of a shard as those of all of its variable; -1 for those out of its range."""
    return jnp.where((indices < 0) | (indices >= n_rows), -1, indices + start)


def _whole(grad: Any, shard: Variable) -> Any:
    if grad is None:
        return jnp.zeros(shard.shape, shard.dtype)
    return grad.to_tensor() if isinstance(grad, IndexedSlices) else grad
