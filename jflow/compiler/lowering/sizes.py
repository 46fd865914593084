"""Equality constraints on the sizes of a program (`ensure_sizes_p`).

A program has one symbol, or a number, for all of them, so that XLA has nothing to do. Whether the
inputs of a step have these sizes is checked before the program runs (`plan.EqualSizes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax.extend.core as jex
import numpy as np

from jflow.base.values import Dim, Sizes, is_known, joined, substituted
from jflow.compiler.graph import Graph, Operation, Tensor
from jflow.compiler.graph.primitives import ensure_sizes_p
from jflow.errors import InvalidArgumentError
from jflow.plan import EqualSizes, InputSize
from jflow.plan.xla import jaxprs

_Pair = tuple[Dim, Dim]
"""A symbol, and the symbol or number that it has to be equal to."""


def with_equal_sizes(
    program: jex.ClosedJaxpr, ops: Sequence[Operation], inputs: Sequence[Any]
) -> tuple[jex.ClosedJaxpr, tuple[EqualSizes, ...]]:
    """Replaces sizes that must be equal by one of them, and removes `ensure_sizes_p`.

    Args:
      program: the equations of the operations.
      ops: the operations of a segment, in the graph's order.
      inputs: the tensors and bundles that the program takes behind the values of variables.

    Returns:
      The program without `ensure_sizes_p`, and the sizes that have to be checked.

    Raises:
      InvalidArgumentError: if a size would have to be two numbers.
    """
    needed = dict.fromkeys(pair for op in ops for pair in _pairs(op.eqn))
    if not needed:
        return program, ()
    history = [*_history(ops[0].graph, needed)]
    sizes = history[-1][1]
    resized = jaxprs.Resizing(lambda dim: substituted(dim, sizes)).closed(program)
    simplified_jaxpr = jaxprs.Rewriting(_simplified).jaxpr(resized.jaxpr)
    return jex.ClosedJaxpr(simplified_jaxpr, resized.consts), tuple(_checks(inputs, history))


def _history(graph: Graph, needed: dict[_Pair, None]) -> Iterator[tuple[Operation, Sizes]]:
    """Yields each operation that first made sizes equal, with all equalities up to it.

    A derivative needs what its forward operation needed, which is the one to name in messages.
    """
    sizes: Sizes = {}
    for op in graph.get_operations():
        for pair in _pairs(op.eqn):
            if pair in needed:
                del needed[pair]
                sizes = _joined(sizes, pair, op)
                yield op, sizes
        if not needed:
            return


def _joined(sizes: Sizes, pair: _Pair, op: Operation) -> Sizes:
    try:
        return joined(sizes, *pair)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{op.name!r} needs a size that it cannot have in one step with the operations before "
            f"it: {error}",
            op=op.name,
        ) from None


def _pairs(eqn: jex.JaxprEqn) -> Iterator[_Pair]:
    if eqn.primitive is ensure_sizes_p:
        yield from eqn.params["equal"]
    for jaxpr in jex.jaxprs_in_params(eqn.params):
        for inner in jaxpr.eqns:
            yield from _pairs(inner)


def _simplified(eqn: jex.JaxprEqn) -> jex.JaxprEqn:
    """Replaces an equation on known sizes by a copy."""
    inputs = eqn.invars
    if eqn.primitive.name == "dim_as_value" and is_known(eqn.params["dim"]):
        aval: Any = eqn.outvars[0].aval
        inputs = [jex.Literal(np.asarray(eqn.params["dim"], aval.dtype), aval)]
    elif eqn.primitive is not ensure_sizes_p:
        return eqn
    copy: jex.JaxprEqn = eqn.replace(primitive=jex.primitives.copy_p, params={}, invars=inputs)
    return copy


def _checks(
    inputs: Sequence[Any], history: Sequence[tuple[Operation, Sizes]]
) -> Iterator[EqualSizes]:
    seen: dict[str, tuple[Dim, InputSize]] = {}
    final = history[-1][1]
    for number, tensor in enumerate(inputs):
        dims = tensor.aval.shape or () if isinstance(tensor, Tensor) else ()
        for axis, dim in enumerate(dims):
            size, here = substituted(dim, final), InputSize(number, axis, tensor.name)
            if is_known(dim):
                continue
            if is_known(size):
                yield EqualSizes(_first(history, dim, size).name, here, size)
                continue
            other, there = seen.setdefault(str(size), (dim, here))
            if str(other) != str(dim):
                yield EqualSizes(_first(history, dim, other).name, there, here)


def _first(history: Sequence[tuple[Operation, Sizes]], one: Dim, other: Dim) -> Operation:
    """Returns the first operation that requires two sizes to be equal, for messages."""
    return next(
        op
        for op, sizes in history
        if str(substituted(one, sizes)) == str(substituted(other, sizes))
    )
