"""Splits conditionals (`cond`, `switch`) into smaller ones around the callbacks in their branches.

A conditional is one XLA program, which cannot call the client. The equations of each branch before,
between and after its callbacks therefore become separate conditionals, which return zeros if
another branch is taken. A callback becomes an operation that takes a predicate first: if it is
false, the function is not called, and the results are zeros, which nothing uses.

The predicate of a callback in a nested conditional is computed by a piece of the outer branch, so
it is zero, false, unless the outer branch is taken as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jflow.base.values import wrapping
from jflow.compiler.graph import request
from jflow.compiler.graph.primitives import calls_client
from jflow.plan.xla import jaxprs
from jflow.plan.xla.jaxprs import Atom

Emit = Callable[[jex.JaxprEqn, list[Atom]], Sequence[Atom]]

_BOOL = jax.core.ShapedArray((), np.dtype(bool))


@dataclass
class _Branch:
    """One branch of a conditional.

    Attributes:
      number: its index.
      jaxpr: its equations, with operations for callbacks at the top level.
      known: atoms outside of the conditional for values inside.
      pieces: the equations before each callback and after the last one.
      calls: the callbacks.
    """

    number: int
    jaxpr: jex.Jaxpr
    known: dict[Atom, Atom]
    pieces: list[list[jex.JaxprEqn]] = field(default_factory=lambda: [[]])
    calls: list[jex.JaxprEqn] = field(default_factory=list)

    def __post_init__(self) -> None:
        for eqn in self.jaxpr.eqns:
            if calls_client(eqn):
                self.calls.append(eqn)
                self.pieces.append([])
            else:
                self.pieces[-1].append(eqn)

    def atom(self, x: Atom) -> Atom:
        return x if isinstance(x, jex.Literal) else self.known[x]

    def leaving(self, piece: int) -> list[jex.Var]:
        """Returns the variables that a piece defines and that are used after it."""
        defined = {var for eqn in self.pieces[piece] for var in eqn.outvars}
        later = [x for eqn in self.calls[piece:] for x in eqn.invars]
        later += [x for eqns in self.pieces[piece + 1 :] for eqn in eqns for x in eqn.invars]
        later += self.jaxpr.outvars
        return list(
            dict.fromkeys(x for x in later if not isinstance(x, jex.Literal) and x in defined)
        )

    def entering(self, piece: int, results: Sequence[Atom]) -> list[jex.Var]:
        """Returns the variables defined before a piece that the piece or `results` uses."""
        used = [*(x for eqn in self.pieces[piece] for x in eqn.invars), *results]
        return list(
            dict.fromkeys(x for x in used if not isinstance(x, jex.Literal) and x in self.known)
        )


def cut(
    eqn: jex.JaxprEqn,
    args: Sequence[Atom],
    branches: Sequence[jex.ClosedJaxpr],
    consts: dict[jex.Var, Any],
    emit: Emit,
) -> Sequence[Atom]:
    """Emits a conditional as smaller conditionals with its callbacks between them.

    Args:
      eqn: the conditional.
      args: atoms for its inputs, the index of the branch first.
      branches: its branches with operations for callbacks at the top level.
      consts: receives the values of constants of the branches.
      emit: adds an equation for some inputs and returns atoms for its outputs.

    Returns:
      Atoms for the outputs of the conditional.
    """
    index, *operands = args
    all_branches = []
    for number, branch in enumerate(branches):
        outside = [jex.Var(var.aval) for var in branch.jaxpr.constvars]
        consts.update(zip(outside, branch.consts, strict=True))
        inputs = [*branch.jaxpr.constvars, *branch.jaxpr.invars]
        atom_by_input = dict(zip(inputs, [*outside, *operands], strict=True))
        all_branches.append(_Branch(number, branch.jaxpr, atom_by_input))
    cutter = _Cutter(eqn, index, len(branches), emit)
    for one in all_branches:
        for piece, call in enumerate(one.calls):
            cutter.compute(one, piece)
            cutter.call(one, call)
    return cutter.finish(all_branches)


class _Cutter:
    def __init__(self, eqn: jex.JaxprEqn, index: Atom, n_branches: int, emit: Emit) -> None:
        self._eqn = eqn
        self._index = index
        self._n_branches = n_branches
        self._emit = emit
        self._predicates: dict[int, Atom] = {}

    def compute(self, branch: _Branch, piece: int) -> None:
        """Emits the piece before a callback."""
        eqns = branch.pieces[piece]
        results = branch.leaving(piece)
        if not results and not any(eqn.effects for eqn in eqns):
            return
        inputs = branch.entering(piece, ())
        program = jaxprs.close(inputs, results, eqns)
        zeros = _zeros(program)
        others = [zeros] * self._n_branches
        others[branch.number] = program
        conditional = self._conditional(others, [branch.known[var] for var in inputs], eqns)
        branch.known.update(zip(results, conditional, strict=True))

    def call(self, branch: _Branch, call: jex.JaxprEqn) -> None:
        """Emits a callback."""
        args = [branch.atom(x) for x in call.invars]
        if not call.params["is_conditional"]:
            args = [self._predicate(branch.number), *args]
            call = call.replace(params=call.params | {"is_conditional": True})
        branch.known.update(zip(call.outvars, self._emit(call, args), strict=True))

    def finish(self, branches: Sequence[_Branch]) -> Sequence[Atom]:
        """Emits the pieces after the last callbacks; returns atoms for the results."""
        entering = [one.entering(-1, one.jaxpr.outvars) for one in branches]
        args = [
            one.known[v] for one, inputs in zip(branches, entering, strict=True) for v in inputs
        ]
        last = [eqn for one in branches for eqn in one.pieces[-1]]
        if not self._eqn.outvars and not any(eqn.effects for eqn in last):
            return []
        programs = []
        for one in branches:
            inputs = [
                var if inputs is entering[one.number] else jex.Var(var.aval)
                for inputs in entering
                for var in inputs
            ]
            programs.append(jaxprs.close(inputs, one.jaxpr.outvars, one.pieces[-1]))
        return self._conditional(programs, args, last)

    def _conditional(
        self,
        branches: Sequence[jex.ClosedJaxpr],
        args: Sequence[Atom],
        eqns: Sequence[jex.JaxprEqn],
    ) -> Sequence[Atom]:
        outvars = [jex.Var(aval) for aval in branches[0].out_avals]
        effects = frozenset(effect for eqn in eqns for effect in eqn.effects)
        params = self._eqn.params | {"branches": tuple(branches)}
        piece = self._eqn.replace(outvars=outvars, params=params, effects=effects)
        return self._emit(piece, [self._index, *args])

    def _predicate(self, branch: int) -> Atom:
        """Returns a boolean atom: whether the index of the conditional selects this branch."""
        if branch not in self._predicates:
            number = np.asarray(branch, self._index.aval.dtype)
            eqn = self._eqn.replace(
                outvars=[jex.Var(_BOOL)],
                primitive=jex.primitives.eq_p,
                params={},
                effects=jex.no_effects,
            )
            literal = jex.Literal(number, self._index.aval)
            (self._predicates[branch],) = self._emit(eqn, [self._index, literal])
        return self._predicates[branch]


def _zeros(program: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Returns a program of the same type that returns zeros."""

    def zeros(*_: Any) -> list[Any]:
        return [_zero(aval) for aval in program.out_avals]

    with request.empty_request_scope():
        return jax.make_jaxpr(zeros)(*map(jaxprs.shape_of, program.in_avals))


def _zero(aval: Any) -> Any:
    wrap = wrapping(aval)
    if wrap is None:
        return jnp.zeros(aval.shape, aval.dtype)
    (carried,) = wrap.in_avals
    (value,) = jex.jaxpr_as_fun(wrap)(jnp.zeros(carried.shape, carried.dtype))
    return value
