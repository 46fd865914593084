"""Branches and loops whose bodies use queues or have other effects.

XLA runs a body as one program, which has no effects. Such a branch or loop is one operation of the
graph, with its bodies as they are; a step makes operations of them (`compiler/graph/loops.py`), and
runs these on the tasks of what they use. All effects of a body, and of its iterations, happen one
after another, in the order in which it is written. A variable is read and written where the body
does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.extend.core as jex

from jflow.client.ops.control.body import Captures, TracedBody, run_after
from jflow.compiler.graph import Tensor
from jflow.compiler.graph.primitives import HANDLES, STATEFUL, group_p, placeholder_p, recorded_p
from jflow.errors import UnimplementedError
from jflow.plan.xla import jaxprs

_INSTEAD = "declare the rank of what it uses, by ensure_shape or set_shape"


def stateful_branch(bodies: Sequence[TracedBody], number: Tensor) -> list[Tensor]:
    """Adds a branch; returns the results of the body that has a number.

    Args:
      bodies: the branches, with equal results.
      number: i32[], in their range.
    """
    parts = [_equations(body) for body in bodies]
    operands = [tensor for _, captures in parts for tensor in captures]
    branches, n_before = [], 0
    for closed, captures in parts:
        branches.append(_with_operands(closed, operands, n_before))
        n_before += len(captures)
    return _added("cond", bodies, [number, *operands], [number], {"branches": tuple(branches)})


def stateful_while(
    goes_on: TracedBody,
    step: TracedBody,
    first: Sequence[Tensor],
    limit: int | None,
    *,
    has_derivatives: bool,
) -> list[Tensor]:
    """Adds a loop with a condition; returns the last values of the loop variables.

    Args:
      goes_on, step: the condition, and the body.
      first: the first values.
      limit: how often the body runs at most, at least once; None for as often as the condition
        holds.
      has_derivatives: whether it is an error to differentiate through it, not zero.
    """
    (cond, outer), (body, inner) = _equations(goes_on), _equations(step)
    params = {
        "cond_jaxpr": cond,
        "cond_nconsts": len(outer),
        "body_jaxpr": body,
        "body_nconsts": len(inner),
        "limit": limit,
        "has_derivatives": has_derivatives,
    }
    return _added("while", [goes_on, step], [*outer, *inner, *first], first, params)


def stateful_scan(
    step: TracedBody,
    first: Sequence[Tensor],
    rows: Sequence[Tensor],
    *,
    is_reversed: bool,
    has_derivatives: bool,
) -> list[Tensor]:
    """Adds a loop over rows; returns the last values, and what the body keeps for each row.

    Args:
      step: the body, of the values and a row; its first results are the next values.
      first: the first values.
      rows: T[n, ...] each, with a known n.
      is_reversed: whether it begins with the last row.
      has_derivatives: as for `stateful_while`.
    """
    (length, *_) = rows[0].shape
    if not isinstance(length, int):
        raise UnimplementedError(
            f"{step.what} has effects and runs for each of an unknown number of rows; declare "
            "their number by set_shape or ensure_shape, or use jflow.while_loop"
        )
    closed, captures = _equations(step)
    params = {
        "jaxpr": closed,
        "length": int(length),
        "reverse": is_reversed,
        "num_consts": len(captures),
        "num_carry": len(first),
        "has_derivatives": has_derivatives,
    }
    return _added("scan", [step], [*captures, *first, *rows], [*first, *rows], params)


def _added(
    kind: str,
    bodies: Sequence[TracedBody],
    inputs: Sequence[Tensor],
    after: Sequence[Tensor],
    params: dict[str, Any],
) -> list[Tensor]:
    """Adds the operation of a branch or loop, which runs after what its bodies run after."""
    graph, body = bodies[0].graph, bodies[-1]
    n_first = params.get("num_carry", len(body.avals))
    rows = [(params["length"], *aval.shape) for aval in body.avals[n_first:]]
    kept = zip(rows, body.avals[n_first:], strict=True)
    avals = [*body.avals[:n_first], *(aval.update(shape=shape) for shape, aval in kept)]
    others = [op for one in bodies for op in one.outer_control_inputs]
    with run_after(graph, after, others):
        op = graph.add(STATEFUL[kind], [x.var for x in inputs], avals, name=kind, **params)
    return [*op.outputs]


def _equations(body: TracedBody) -> tuple[jex.ClosedJaxpr, Sequence[Tensor]]:
    """Returns a body as equations, (*captures, *arguments) → results, and the captures."""
    captures = Captures(body)
    for op in body.ops:
        if op.eqn.primitive is placeholder_p:
            captures.capture(op.outputs[0], op.outputs[0].var)
        elif op.eqn.primitive is recorded_p:
            raise body.refusal(op, "has a tensor of unknown rank", _INSTEAD)
        elif op.eqn.primitive is not group_p and op.eqn.primitive not in HANDLES:
            captures.add(op.eqn)
    results = []
    for tensor in body.outputs:
        atom = captures[tensor.var]
        if tensor.aval.weak_type:  # iterations need equal types
            (eqn,) = jax.make_jaxpr(_strong)(jaxprs.shape_of(tensor.aval)).jaxpr.eqns
            (atom,) = captures.emit(eqn, [atom])
        results.append(atom)
    outside = captures.tensors
    invars = [*(x.var for x in outside.values()), *(x.var for x in body.inputs)]
    return jaxprs.close(invars, results, captures.eqns), [*outside.values()]


def _strong(value: Any) -> Any:
    return jax.lax.convert_element_type(value, value.dtype)


def _with_operands(
    closed: jex.ClosedJaxpr, operands: Sequence[Tensor], first: int
) -> jex.ClosedJaxpr:
    """Returns a branch that takes the operands of all, of which its own begin at `first`."""
    invars = [jex.Var(tensor.aval) for tensor in operands]
    jaxpr = closed.jaxpr
    invars[first : first + len(jaxpr.invars)] = jaxpr.invars
    padded: jex.ClosedJaxpr = closed.replace(jaxpr=jaxpr.replace(invars=invars))
    return padded
