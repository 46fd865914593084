"""Jaxpr transformations: inlining, closing, rewriting, resizing, 64-bit types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.export
import jax.extend.core as jex
import numpy as np

from jflow.base.values import is_switched_off

Atom = Any  # jex.Var | jex.Literal; JAX has no public name for the union
Emit = Callable[[jex.JaxprEqn, list[Atom]], Sequence[Atom]]


def shape_of(aval: Any) -> jax.ShapeDtypeStruct:
    """Converts an abstract value to a `jax.ShapeDtypeStruct`, as JAX's entry points take."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def close(
    invars: Sequence[jex.Var],
    outvars: Sequence[Atom],
    eqns: Sequence[jex.JaxprEqn],
    consts: Mapping[jex.Var, Any] | None = None,
) -> jex.ClosedJaxpr:
    """Builds a closed jaxpr from equations; `consts` are values of constant variables."""
    consts = consts or {}
    names = tuple(f"arg{i}" for i in range(len(invars)))
    results = tuple(f"result{i}" for i in range(len(outvars)))
    debug = jex.DebugInfo("jflow", "segment", names, results)
    effects = frozenset(effect for eqn in eqns for effect in eqn.effects)
    jaxpr = jex.Jaxpr(list(consts), invars, outvars, eqns, effects, debug)
    return jex.ClosedJaxpr(jaxpr, list(consts.values()))


def inline(
    jaxpr: jex.Jaxpr, consts: Sequence[Atom], args: Sequence[Atom], emit: Emit
) -> list[Atom]:
    """Walks the equations of `jaxpr` with its inputs replaced.

    Args:
      jaxpr: the jaxpr to inline.
      consts, args: atoms that replace its constants and inputs.
      emit: called with each equation and its input atoms; returns its output atoms.

    Returns:
      The output atoms.
    """
    atom_by_var: dict[Atom, Atom] = dict(zip(jaxpr.constvars, consts, strict=True))
    atom_by_var.update(zip(jaxpr.invars, args, strict=True))

    def atom(x: Atom) -> Atom:
        return x if isinstance(x, jex.Literal) else atom_by_var[x]

    for eqn in jaxpr.eqns:
        atom_by_var.update(zip(eqn.outvars, emit(eqn, [atom(x) for x in eqn.invars]), strict=True))
    return [atom(x) for x in jaxpr.outvars]


def open_calls(program: jex.ClosedJaxpr, *, branches: bool = False) -> jex.ClosedJaxpr:
    """Returns the program with calls of `jax.jit` functions replaced by their equations.

    Since JAX 0.12 there are calls also of functions that are to be inlined.

    Args:
      program: the program.
      branches: whether to replace each `cond` and `switch` by all branches and selects, too. What
        a result depends on is then seen equation by equation. Branches with effects stay, and
        those with a `while`, which might not end where it is not taken.
    """
    eqns: list[jex.JaxprEqn] = []
    consts = dict(zip(program.jaxpr.constvars, program.consts, strict=True))

    def opened(body: jex.ClosedJaxpr, args: Sequence[Atom]) -> list[Atom]:
        inner = [jex.Var(var.aval) for var in body.jaxpr.constvars]
        consts.update(zip(inner, body.consts, strict=True))
        return inline(body.jaxpr, inner, args, emit)

    def emit(eqn: jex.JaxprEqn, args: list[Atom]) -> Sequence[Atom]:
        if eqn.primitive.name == "jit":
            return opened(eqn.params["jaxpr"], args)
        if branches and eqn.primitive.name == "cond" and not eqn.effects:
            which, *operands = args
            if not any(_may_not_end(branch.jaxpr) for branch in eqn.params["branches"]):
                cases = [opened(branch, operands) for branch in eqn.params["branches"]]
                return [selected(which, each) for each in zip(*cases, strict=True)]
        outvars = [jex.Var(var.aval) for var in eqn.outvars]
        eqns.append(eqn.replace(invars=args, outvars=outvars))
        return outvars

    def selected(which: Atom, cases: Sequence[Atom]) -> Atom:
        if all(case is cases[0] for case in cases):
            return cases[0]
        shapes = [shape_of(x.aval) for x in (which, *cases)]
        (select,) = jax.make_jaxpr(jax.lax.select_n)(*shapes).jaxpr.eqns
        result = jex.Var(select.outvars[0].aval)
        eqns.append(select.replace(invars=[which, *cases], outvars=[result]))
        return result

    jaxpr = program.jaxpr
    outvars = inline(jaxpr, jaxpr.constvars, jaxpr.invars, emit)
    return close(jaxpr.invars, outvars, eqns, consts)


def _may_not_end(jaxpr: jex.Jaxpr) -> bool:
    return any(
        eqn.primitive.name == "while" or any(map(_may_not_end, jex.jaxprs_in_params(eqn.params)))
        for eqn in jaxpr.eqns
    )


class Rewriting:
    """Base class of rewrites of equations and nested jaxprs; rebuilds each nested jaxpr once.

    Args:
      change: called with each equation, whose nested jaxprs are rebuilt; returns the new equation.
    """

    def __init__(self, change: Callable[[jex.JaxprEqn], jex.JaxprEqn]) -> None:
        self._change = change
        self._done: dict[int, tuple[Any, Any]] = {}

    def jaxpr(self, jaxpr: jex.Jaxpr) -> jex.Jaxpr:
        """Returns the jaxpr with every equation rewritten."""
        if id(jaxpr) not in self._done:
            # The original is kept alive, so that its id is not reused.
            self._done[id(jaxpr)] = (jaxpr, self._rebuilt(jaxpr))
        return self._done[id(jaxpr)][1]  # type: ignore[no-any-return]

    def _rebuilt(self, jaxpr: jex.Jaxpr) -> jex.Jaxpr:
        rebuilt: jex.Jaxpr = jaxpr.replace(eqns=[self.eqn(eqn) for eqn in jaxpr.eqns])
        return rebuilt

    def eqn(self, eqn: jex.JaxprEqn) -> jex.JaxprEqn:
        """Returns the equation with itself and every nested equation rewritten."""
        params = {key: self._param(value) for key, value in eqn.params.items()}
        return self._change(eqn.replace(params=params))

    def _param(self, value: Any) -> Any:
        if isinstance(value, jex.ClosedJaxpr):
            return jex.ClosedJaxpr(self.jaxpr(value.jaxpr), value.consts)
        if isinstance(value, jex.Jaxpr):
            return self.jaxpr(value)
        if isinstance(value, tuple | list) and type(value) in (tuple, list):
            return type(value)(self._param(item) for item in value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self._param, value))
        return value


class Resizing(Rewriting):
    """Replaces dimension sizes in jaxprs, in variable types and in parameters.

    Args:
      change: called with each size; returns the new size.
    """

    def __init__(self, change: Callable[[Any], Any]) -> None:
        super().__init__(self._retyped)
        self._size = change
        self._vars: dict[jex.Var, jex.Var] = {}

    def closed(self, jaxpr: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
        """Returns the program with every size replaced."""
        return jex.ClosedJaxpr(self.jaxpr(jaxpr.jaxpr), jaxpr.consts)

    def _rebuilt(self, jaxpr: jex.Jaxpr) -> jex.Jaxpr:
        rebuilt: jex.Jaxpr = (
            super()
            ._rebuilt(jaxpr)
            .replace(
                constvars=[*map(self._atom, jaxpr.constvars)],
                invars=[*map(self._atom, jaxpr.invars)],
                outvars=[*map(self._atom, jaxpr.outvars)],
            )
        )
        return rebuilt

    def _retyped(self, eqn: jex.JaxprEqn) -> jex.JaxprEqn:
        retyped: jex.JaxprEqn = eqn.replace(
            invars=[*map(self._atom, eqn.invars)], outvars=[*map(self._atom, eqn.outvars)]
        )
        return retyped

    def _atom(self, x: Atom) -> Atom:
        if isinstance(x, jex.Literal):
            return x
        if x not in self._vars:
            self._vars[x] = jex.Var(self._param(x.aval))
        return self._vars[x]

    def _param(self, value: Any) -> Any:
        if jax.export.is_symbolic_dim(value):
            return self._size(value)
        if isinstance(value, jax.core.ShapedArray | jax.ShapeDtypeStruct):
            changed: Any = value
            return changed.update(shape=tuple(map(self._size, value.shape)))
        return super()._param(value)


_DOUBLE = np.dtype("float64")


def needs_64_bits(jaxpr: jex.Jaxpr) -> bool:
    """Whether a program has 64-bit types while this thread disables them."""
    return is_switched_off(_DOUBLE) and _is_wide(jaxpr, set())


def _is_wide(jaxpr: jex.Jaxpr, seen: set[int]) -> bool:
    if id(jaxpr) in seen:
        return False
    seen.add(id(jaxpr))
    return (
        have_64_bits(var.aval for var in (*jaxpr.invars, *jaxpr.constvars))
        or any(have_64_bits(var.aval for var in eqn.outvars) for eqn in jaxpr.eqns)
        or any(
            _is_wide(getattr(body, "jaxpr", body), seen)
            for eqn in jaxpr.eqns
            for body in jex.jaxprs_in_params(eqn.params)
        )
    )


def have_64_bits(avals: Iterable[Any]) -> bool:
    """Whether some abstract values have 64-bit types while this thread disables them."""
    return any(is_switched_off(getattr(aval, "dtype", None)) for aval in avals)


def allow_64_bits(is_needed: bool) -> AbstractContextManager[Any]:
    """Returns a context manager that enables 64-bit types on this thread if needed."""
    block: AbstractContextManager[Any] = jax.enable_x64(True) if is_needed else nullcontext()
    return block
