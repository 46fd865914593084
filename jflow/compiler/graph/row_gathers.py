"""Finds gathers of a variable's rows, whose gradients can be sparse (rows and indices).

An operation such as `jnp.take(v, indices, axis=0)` or `v[indices]` contains one `gather` of rows of
the variable, whose result is the operation's. The derivative by the variable is then zero but for
the rows that the indices name, and its rows there are the derivative by the operation's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex

from jflow.base.values import is_static
from jflow.compiler.graph import request
from jflow.compiler.graph.gradient import between, is_recorded, points_of, variable_of
from jflow.compiler.graph.graph import Graph, Operation, Tensor
from jflow.plan.xla import jaxprs


@dataclass(frozen=True)
class RowGather:
    """An operation that gathers rows of a variable.

    Attributes:
      rows: its result, T[*n, *row].
      others: its inputs except for the variable.
      program: from these to the indices of the rows, i[*n, 1]; those out of range are not taken.
      clips: whether indices out of range mean the first or last row instead.
    """

    rows: Tensor
    others: tuple[Tensor, ...]
    program: jex.ClosedJaxpr
    clips: bool


def row_gathers(variable: Any, targets: Sequence[Tensor]) -> list[RowGather] | None:
    """Returns the gathers through which targets depend on a variable; None unless all take rows.

    Args:
      variable: a variable of the graph, T[m, *row].
      targets: tensors.

    Returns:
      The operations; None if there is none, or if another operation uses the variable.
    """
    graph: Graph = targets[0].graph
    reads = points_of(graph, variable)
    if not reads or not reads[0].shape or not is_static(reads[0].shape):
        return None
    gathers = []
    ref = variable_of(variable)
    for op in between(graph, reads, targets, variables=[ref]):
        if is_recorded(op) and ref in op.eqn.params["state"]:
            return None
        used = [tensor for tensor in op.inputs if tensor in reads]
        if not used:
            continue
        gather = _row_gather(op, used[0]) if len(used) == 1 else None
        if gather is None:
            return None
        gathers.append(gather)
    return gathers or None


def _row_gather(op: Operation, read: Tensor) -> RowGather | None:
    others = tuple(tensor for tensor in op.inputs if tensor is not read)
    indices = row_indices(op.eqn, read.var, [tensor.var for tensor in others])
    return None if indices is None else RowGather(op.outputs[0], others, *indices)


def row_indices(
    eqn: jex.JaxprEqn, var: jex.Var, others: Sequence[jex.Var]
) -> tuple[jex.ClosedJaxpr, bool] | None:
    """Extracts the program of the row indices from an equation that gathers rows of an argument.

    Args:
      eqn: the equation.
      var: the argument, T[m, *row].
      others: the other arguments.

    Returns:
      `RowGather.program` and `clips`; None if the equation does anything else.
    """
    eqns = _inline_calls(eqn, var)
    uses = [eqn for eqn in eqns if var in [x for x in eqn.invars if isinstance(x, jex.Var)]]
    if len(uses) != 1 or uses[0].primitive is not jex.primitives.gather_p or len(eqn.outvars) != 1:
        return None
    (gather,) = uses
    shape: tuple[Any, ...] = var.aval.shape  # type: ignore[attr-defined]
    if gather.outvars[0] is not eqns[-1].outvars[0] or not _takes_rows(gather, shape):
        return None
    indices = gather.invars[1]
    if isinstance(indices, jex.Literal):
        return None
    needed, equations = {indices}, []
    for one in reversed(eqns[:-1]):
        if not needed.isdisjoint(one.outvars):
            equations.append(one)
            needed.update(x for x in one.invars if isinstance(x, jex.Var))
    clips = gather.params["mode"] != jax.lax.GatherScatterMode.FILL_OR_DROP
    return jaxprs.close(others, [indices], equations[::-1]), clips


def _takes_rows(eqn: jex.JaxprEqn, shape: tuple[Any, ...]) -> bool:
    """Whether a `gather` selects whole rows by index and returns nothing else."""
    numbers = eqn.params["dimension_numbers"]
    indices: Any = eqn.invars[1].aval
    n_index_dims = indices.ndim - 1
    rank = len(shape)
    return (
        tuple(numbers.collapsed_slice_dims) == (0,)
        and tuple(numbers.start_index_map) == (0,)
        and not numbers.operand_batching_dims
        and tuple(numbers.offset_dims) == tuple(range(n_index_dims, n_index_dims + rank - 1))
        and tuple(eqn.params["slice_sizes"]) == (1, *shape[1:])
    )


def _inline_calls(eqn: jex.JaxprEqn, var: jex.Var) -> list[jex.JaxprEqn]:
    """Inlines an equation: nested `jit` calls that take `var` are replaced by their bodies."""
    flat: list[jex.JaxprEqn] = []

    def emit(inner: jex.JaxprEqn, inputs: list[jaxprs.Atom]) -> list[jaxprs.Atom]:
        takes = any(x is var for x in inputs)
        body: Any = inner.params.get("jaxpr")
        if takes and inner.primitive.name == "jit" and not body.consts:
            return jaxprs.inline(body.jaxpr, [], inputs, emit)
        outvars = [jex.Var(x.aval) for x in inner.outvars]
        flat.append(request.replaced(inner, None).replace(invars=inputs, outvars=outvars))
        return list(outvars)

    results = emit(eqn, list(eqn.invars))
    # A result that is an argument, or comes before the last equation, is not that of a gather.
    if not flat or [*results] != [*flat[-1].outvars]:
        return [eqn]
    return flat
