"""A computation over many variables as operations of a graph, each beside its variable."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from jflow.client.ops import Variable
from jflow.compiler.graph import colocate_with, request
from jflow.plan.xla.jaxprs import open_calls, shape_of
from jflow.training.optimizers.locality import Shapes, key_of, local_calls, owner_of


def call_beside(
    fun: Callable[..., Any], args: Sequence[Any], variables: Sequence[Variable], shapes: Shapes
) -> Any:
    """Adds a call of `fun` as operations, each beside the variable that it concerns.

    Args:
      fun: a traceable function.
      args: pytrees of tensors, and of numbers and None, which do not change; a leaf belongs to the
        variable of its index if it has its shape.
      variables: the variables.
      shapes: their shapes in `args`, where a variable may be some of its rows.

    Returns:
      The result of `fun` with tensors for arrays.
    """
    graph = variables[0].graph
    leaves, in_tree = jax.tree_util.tree_flatten_with_path(list(args))
    tensors = [graph.as_tensor(leaf) for _, leaf in leaves]
    arguments = [owner_of(path, x, shapes) for (path, _), x in zip(leaves, tensors, strict=True)]
    out_trees = []

    def flat(*values: Any) -> list[Any]:
        results, out_tree = jax.tree.flatten(fun(*jax.tree.unflatten(in_tree, values)))
        out_trees.append(out_tree)
        return results

    with request.empty_request_scope():
        traced = open_calls(jax.make_jaxpr(flat)(*(shape_of(tensor.aval) for tensor in tensors)))
    (out_tree,) = out_trees
    outputs = jax.tree.unflatten(out_tree, traced.out_avals)
    results = [
        owner_of(path, x, shapes) for path, x in jax.tree_util.tree_leaves_with_path(outputs)
    ]
    known = dict(zip(traced.jaxpr.invars, tensors, strict=True))
    calls: dict[Hashable, jex.ClosedJaxpr] = {}
    for one in local_calls(traced, arguments, results):
        key = key_of(one.program)
        if key not in calls:
            calls[key] = _call_of(one.program)
        inputs = [known[var].var for var in one.inputs]
        with colocate_with(variables[max(one.owner, 0)], ignore_existing=True):
            found = graph.inline(calls[key], inputs, lambda _: "update")
        known.update(zip(one.outputs, found, strict=True))
    made = [
        graph.constant(np.asarray(x.val)) if isinstance(x, jex.Literal) else known[x]
        for x in traced.jaxpr.outvars
    ]
    return jax.tree.unflatten(out_tree, made)


def _call_of(program: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Returns a call of a program as one equation."""
    with request.empty_request_scope():
        call: jex.ClosedJaxpr = jax.make_jaxpr(jax.jit(jex.jaxpr_as_fun(program)))(
            *map(shape_of, program.in_avals)
        )
    return call
