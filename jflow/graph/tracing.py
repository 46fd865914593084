"""From Python functions to equations: tracing with a cache, and inlining of what was traced."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from jflow.graph import internals, request

Atom = Any  # jex.Var | jex.Literal; JAX has no public name for the union
Emit = Callable[[jex.JaxprEqn, list[Atom]], Sequence[Atom]]


@dataclass(frozen=True)
class Traced:
    """Equations of a function, and the structure of what it returns."""

    jaxpr: jex.ClosedJaxpr
    out_tree: Any


@dataclass(frozen=True)
class Static:
    """An argument that is no tensor.

    Its type and text count too, for Python takes 1, 1.0 and True, or 0.0 and -0.0, for equal.
    """

    kind: type
    text: str
    value: Any

    @classmethod
    def of(cls, value: Any) -> Static:
        """The argument of that value."""
        return cls(
            type(value),
            repr(value) if isinstance(value, float | complex | np.generic) else "",
            value,
        )


def trace(fun: Callable[..., Any], in_tree: Any, leaves: Sequence[Static | Any]) -> Traced:
    """The equations of `fun` for arguments given as leaves.

    Several equations are wrapped into one `jit` equation, so that one call of a library function
    is one operation of the graph.

    Args:
      fun: a function of JAX values.
      in_tree: structure of (args, kwargs).
      leaves: a Static, or the abstract value of a tensor, for each leaf.
    """
    if _is_fixed(fun) and not any(_is_code(leaf) for leaf in leaves):
        try:
            return _traced(fun, in_tree, tuple(leaves), internals.trace_context())
        except TypeError:
            # Either a leaf cannot be hashed, or the user's call is wrong: tracing again tells.
            pass
    return _trace(fun, in_tree, leaves)


def _is_fixed(fun: Callable[..., Any]) -> bool:
    """Whether a function gives the same equations each time: a library's does, a user's may not."""
    module = getattr(fun, "__module__", None) or ""
    return module.partition(".")[0] in ("jax", "_operator", "operator")


def _is_code(leaf: Static | Any) -> bool:
    return isinstance(leaf, Static) and callable(leaf.value) and not isinstance(leaf.value, type)


@lru_cache(maxsize=4096)
def _traced(fun: Callable[..., Any], in_tree: Any, leaves: tuple[Any, ...], _: Hashable) -> Traced:
    # The context is part of the key, device scopes included. These must not share equations: a
    # custom derivative rule remembers what it was traced into in the equation it belongs to.
    return _trace(fun, in_tree, leaves)


def _trace(fun: Callable[..., Any], in_tree: Any, leaves: Sequence[Static | Any]) -> Traced:
    out_trees = []

    def call(*arrays: Any) -> list[Any]:
        rest = iter(arrays)
        filled = [x.value if isinstance(x, Static) else next(rest) for x in leaves]
        args, kwargs = jax.tree.unflatten(in_tree, filled)
        outputs, out_tree = jax.tree.flatten(fun(*args, **kwargs))
        out_trees.append(out_tree)
        return outputs

    call.__name__ = call.__qualname__ = name_of(fun)
    shapes = [shape_of(x) for x in leaves if not isinstance(x, Static)]
    # What is cached must not ask for a device: it is asked for where the equations are used.
    with request.asking_for_nothing():
        jaxpr = jax.make_jaxpr(call)(*shapes)
        if len(jaxpr.eqns) > 1:
            jaxpr = jax.make_jaxpr(jax.jit(call))(*shapes)
    return Traced(jaxpr, out_trees[-1])


def name_of(fun: Callable[..., Any]) -> str:
    """A function's name as an operation can have it."""
    return re.sub(r"[^A-Za-z0-9_.]", "", getattr(fun, "__name__", "")).strip("_.") or "call"


def shape_of(aval: Any) -> jax.ShapeDtypeStruct:
    """An abstract value in the form that JAX's own entry points take."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def close(
    invars: Sequence[jex.Var],
    outvars: Sequence[Atom],
    eqns: Sequence[jex.JaxprEqn],
    consts: Mapping[jex.Var, Any] | None = None,
) -> jex.ClosedJaxpr:
    """Makes a program of equations; `consts` are values for variables that are no inputs."""
    consts = consts or {}
    names = tuple(f"arg{i}" for i in range(len(invars)))
    results = tuple(f"result{i}" for i in range(len(outvars)))
    debug = jex.DebugInfo("jflow", "segment", names, results)
    jaxpr = jex.Jaxpr(list(consts), invars, outvars, eqns, jex.no_effects, debug)
    return jex.ClosedJaxpr(jaxpr, list(consts.values()))


def inline(
    jaxpr: jex.Jaxpr, consts: Sequence[Atom], args: Sequence[Atom], emit: Emit
) -> list[Atom]:
    """Walks the equations of `jaxpr` with its inputs replaced.

    Args:
      jaxpr: what to inline.
      consts, args: atoms for its constants and inputs.
      emit: is given each equation and the atoms for its inputs; returns atoms for its outputs.

    Returns:
      Atoms for the outputs.
    """
    known: dict[Atom, Atom] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, args, strict=True))

    def atom(x: Atom) -> Atom:
        return x if isinstance(x, jex.Literal) else known[x]

    for eqn in jaxpr.eqns:
        known.update(zip(eqn.outvars, emit(eqn, [atom(x) for x in eqn.invars]), strict=True))
    return [atom(x) for x in jaxpr.outvars]
