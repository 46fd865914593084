"""Cuts one computation over many variables into calls that each run on one variable's device.

An optimizer computes the updates of all variables at once, although most of it concerns one
variable at a time. An equation belongs to a variable if that variable is the only one among what it
is computed from; scalars that all variables share, such as the number of steps, do not count. What
several variables go into, such as the norm of all gradients, is shared. A *local call* is the
equations of one owner that do not wait for another owner in between; it becomes one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax
import jax.extend.core as jex

from jflow.compiler.graph import request
from jflow.plan.xla import jaxprs

SHARED = -1
"""The owner of what belongs to no variable, or to several."""

OwnerIndex = int
"""The index of the variable that a value belongs to, or `SHARED`."""

Shapes = Sequence[tuple[Any, ...]]
"""The shapes of the variables."""


@dataclass(frozen=True)
class LocalCall:
    """Equations that run on one device.

    Attributes:
      owner: the variable on whose device they run.
      program: the equations; its arguments and results are those of `inputs` and `outputs`.
      inputs, outputs: variables of the whole computation.
    """

    owner: OwnerIndex
    program: jex.ClosedJaxpr
    inputs: tuple[jex.Var, ...]
    outputs: tuple[jex.Var, ...]


@dataclass(frozen=True)
class LocalComputation:
    """A computation over many variables, as local calls.

    Attributes:
      calls: each after those whose results it uses.
      inputs, outputs: the arguments and results of the computation, flat.
    """

    calls: list[LocalCall]
    inputs: list[jex.Var]
    outputs: list[jaxprs.Atom]

    @classmethod
    def trace(cls, fun: Callable[..., Any], args: Sequence[Any], shapes: Shapes) -> Self:
        """Returns the calls of `fun(*args)`.

        Args:
          fun: a traceable function.
          args: pytrees whose leaves have `shape` and `aval`; a leaf belongs to the variable of its
            index if it has its shape.
          shapes: the shapes of the variables in `args`, where a variable may be some of its rows.
        """
        leaves, in_tree = jax.tree_util.tree_flatten_with_path(list(args))
        arguments = [owner_of(path, leaf, shapes) for path, leaf in leaves]
        results: list[OwnerIndex] = []

        def flat(*values: Any) -> list[Any]:
            out = jax.tree_util.tree_leaves_with_path(fun(*jax.tree.unflatten(in_tree, values)))
            results.extend(owner_of(path, leaf, shapes) for path, leaf in out)
            return [leaf for _, leaf in out]

        avals = [jaxprs.shape_of(leaf.aval) for _, leaf in leaves]
        with request.empty_request_scope():
            # A branch that updates all variables would belong to none, and not to each its part.
            traced = jaxprs.open_calls(jax.make_jaxpr(flat)(*avals), branches=True)
        calls = local_calls(traced, arguments, results)
        return cls(calls, list(traced.jaxpr.invars), list(traced.jaxpr.outvars))


def local_calls(
    computation: jex.ClosedJaxpr, arguments: Sequence[OwnerIndex], results: Sequence[OwnerIndex]
) -> list[LocalCall]:
    """Returns the local calls of a computation, each after those whose results it uses.

    Args:
      computation: the equations.
      arguments, results: the owners of its arguments and results.
    """
    jaxpr = computation.jaxpr
    site: dict[jex.Var, _Site] = {}
    for var, owner in zip(jaxpr.invars, arguments, strict=True):
        site[var] = _Site(0, owner)
    for eqn, owner in zip(jaxpr.eqns, _owners(jaxpr, arguments, results), strict=True):
        before = [site[x] for x in vars_of(eqn.invars) if x in site]
        changes = max((one.changes + (one.owner != owner) for one in before), default=0)
        site.update(dict.fromkeys(eqn.outvars, _Site(changes, owner)))
    _delay(jaxpr, site)
    groups: dict[_Site, list[jex.JaxprEqn]] = {}
    for eqn in jaxpr.eqns:
        if eqn.outvars:
            groups.setdefault(site[eqn.outvars[0]], []).append(eqn)
    leaving = set(vars_of(jaxpr.outvars))
    for here, eqns in groups.items():
        leaving.update(x for eqn in eqns for x in vars_of(eqn.invars) if site.get(x) != here)
    consts = dict(zip(jaxpr.constvars, computation.consts, strict=True))
    return [_local_call(here.owner, groups[here], consts, leaving) for here in sorted(groups)]


class _Site(NamedTuple):
    """A local call: how often the owner changes on the longest way to it, and its owner.

    An equation follows those of its own call, and those of calls with fewer changes: with
    equal owners the number does not fall, with different ones it grows.
    """

    changes: int
    owner: OwnerIndex


def _delay(jaxpr: jex.Jaxpr, site: dict[jex.Var, _Site]) -> None:
    """Moves equations whose results only their own owner uses to the first call that uses them.

    So a variable is not read in an earlier program than the one that assigns it, if what is used
    together with it comes late.
    """
    users: dict[jex.Var, list[_Site]] = {}
    for eqn in reversed(jaxpr.eqns):
        if not eqn.outvars:
            continue
        here = site[eqn.outvars[0]]
        using = [one for var in eqn.outvars for one in users.get(var, ())]
        if using and all(one.owner == here.owner for one in using):
            here = min(using)
            site.update(dict.fromkeys(eqn.outvars, here))
        for x in vars_of(eqn.invars):
            users.setdefault(x, []).append(here)


def _local_call(
    owner: OwnerIndex,
    eqns: Sequence[jex.JaxprEqn],
    consts: Mapping[jex.Var, object],
    leaving: Collection[jex.Var],
) -> LocalCall:
    defined = dict.fromkeys(var for eqn in eqns for var in eqn.outvars)
    used = dict.fromkeys(x for eqn in eqns for x in vars_of(eqn.invars) if x not in defined)
    inputs = tuple(var for var in used if var not in consts)
    outputs = tuple(var for var in defined if var in leaving)
    own = {var: consts[var] for var in used if var in consts}
    return LocalCall(owner, jaxprs.close(inputs, outputs, eqns, own), inputs, outputs)


def compiled(program: jex.ClosedJaxpr) -> Callable[..., list[Any]]:
    """Returns a program as a function under `jax.jit`, which is called "update" in graphs."""

    def update(*arguments: Any) -> list[Any]:
        results: list[Any] = jex.jaxpr_as_fun(program)(*arguments)
        return results

    jitted: Callable[..., list[Any]] = jax.jit(update)
    return jitted


def owner_of(path: tuple[Any, ...], value: Any, shapes: Shapes) -> OwnerIndex:
    """The index of the variable that a leaf belongs to, if it has its shape; else `SHARED`."""
    index = getattr(path[-1], "idx", -1) if path else -1
    is_own = 0 <= index < len(shapes) and value.shape == shapes[index]
    return index if is_own else SHARED


def key_of(program: jex.ClosedJaxpr) -> Hashable:
    """A key that only programs with the same equations have; equal programs may differ in it.

    What cannot be compared, such as an array, is compared by identity, so the program has to live
    as long as its key.
    """
    jaxpr = program.jaxpr
    numbers: dict[jex.Var, int] = {}

    def atom(x: jaxprs.Atom) -> Hashable:
        if isinstance(x, jex.Literal):
            return x.aval, x.val.tobytes() if hasattr(x.val, "tobytes") else x.val
        return numbers.setdefault(x, len(numbers)), x.aval

    return (
        *map(atom, (*jaxpr.invars, *jaxpr.constvars)),
        *(id(value) for value in program.consts),
        *(
            (
                eqn.primitive,
                *((name, _comparable(value)) for name, value in sorted(eqn.params.items())),
                *map(atom, (*eqn.invars, *eqn.outvars)),
            )
            for eqn in jaxpr.eqns
        ),
        *map(atom, jaxpr.outvars),
    )


def _comparable(value: object) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value


def _owners(
    jaxpr: jex.Jaxpr, arguments: Sequence[OwnerIndex], results: Sequence[OwnerIndex]
) -> list[OwnerIndex]:
    """Returns the owner of each equation; one without arguments belongs to what uses it."""
    owner_of: dict[jex.Var, OwnerIndex] = dict(zip(jaxpr.invars, arguments, strict=True))
    owners: list[OwnerIndex | None] = []
    for eqn in jaxpr.eqns:
        owner = _common(owner_of[x] for x in vars_of(eqn.invars) if x in owner_of)
        owners.append(owner)
        if owner is not None:
            owner_of.update(dict.fromkeys(eqn.outvars, owner))
    users: dict[jex.Var, list[OwnerIndex]] = {}
    for var, owner in zip(jaxpr.outvars, results, strict=True):
        if not isinstance(var, jex.Literal):
            users.setdefault(var, []).append(owner)
    reversed_owners: list[OwnerIndex] = []
    for eqn, known in zip(reversed(jaxpr.eqns), reversed(owners), strict=True):
        using = {each for var in eqn.outvars for each in users.get(var, ())}
        alone = using.pop() if len(using) == 1 else SHARED
        reversed_owners.append(alone if known is None else known)
        for x in vars_of(eqn.invars):
            users.setdefault(x, []).append(reversed_owners[-1])
    return reversed_owners[::-1]


def _common(owners: Iterable[OwnerIndex]) -> OwnerIndex | None:
    """Returns the owner of what is computed from values of some owners; None if there are none."""
    distinct = set(owners)
    own = distinct - {SHARED}
    if len(own) == 1:
        return own.pop()
    return SHARED if distinct else None


def vars_of(atoms: Iterable[jaxprs.Atom]) -> list[jex.Var]:
    """Returns the variables among the operands or results of an equation."""
    return [x for x in atoms if not isinstance(x, jex.Literal)]
