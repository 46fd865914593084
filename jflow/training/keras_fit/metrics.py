"""Metrics of batches that several workers process at once: sums over batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from jflow.plan.xla import jaxprs
from jflow.training.optimizers.locality import vars_of


def are_sums(update: Callable[[Sequence[Any]], Sequence[Any]], values: Sequence[Any]) -> list[bool]:
    """Returns which values an update adds something to that depends on none of them.

    Args:
      update: a traceable function from values to new values.
      values: arrays, of which the shapes and dtypes count.
    """
    avals = [jax.ShapeDtypeStruct(np.shape(x), jax.dtypes.result_type(x)) for x in values]
    program = jaxprs.open_calls(jax.make_jaxpr(lambda *old: [*update(old)])(*avals)).jaxpr
    dependent = {*program.invars}
    added: dict[jex.Var, tuple[jaxprs.Atom, ...]] = {}
    for eqn in program.eqns:
        operands = tuple(eqn.invars)
        if eqn.primitive.name == "add":
            added[eqn.outvars[0]] = operands
        if any(x in dependent for x in vars_of(operands)):
            dependent.update(eqn.outvars)
    return [
        not isinstance(new, jex.Literal)
        and (new is old or _is_sum(old, added.get(new, ()), dependent))
        for old, new in zip(program.invars, program.outvars, strict=True)
    ]


def _is_sum(old: jex.Var, operands: Sequence[jaxprs.Atom], dependent: set[jex.Var]) -> bool:
    others = [x for x in operands if x is not old]
    return len(others) == len(operands) - 1 and not any(x in dependent for x in vars_of(others))


def total(values: Sequence[Any], parts: Iterable[Sequence[Any]]) -> list[Any]:
    """Returns values with the same values of each part added."""
    columns = zip(*parts, strict=True)
    return [sum(column, start=np.asarray(x)) for x, column in zip(values, columns, strict=True)]
