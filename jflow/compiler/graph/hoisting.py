"""Hoisting of state, device requests and callbacks to the top level of a traced function.

JAX nests programs: a `jit` inside a function, the body of a loop, a branch. An operation of a graph
runs on one device and is pure, unless its primitive is jflow's own. Therefore:

* A call (`jit`, a custom derivative rule) is replaced by its equations if they use a variable, call
  a Python function, or request another device than the call.
* A variable that a loop, branch or `jax.checkpoint` reads is read once outside and passed in.
* A loop or branch whose body requests a device runs there as a whole. One that requests several
  devices stays, and a step opens it (`opening.py`).
* A write inside a loop or branch is refused, as JAX itself does in most cases.
* A mutable array (`jax.Ref`) that the function makes becomes a value, which its equations pass on,
  unless derivatives follow; then it has to stay inside of a `jax.jit`.
* A callback becomes an operation (`callbacks.py`). Checkpoints and conditionals around it are
  divided (`branches.py`); in the body of a loop it remains part of the loop, unless the loop only
  maps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.extend.core as jex

from jflow.compiler.graph import branches, origin, request
from jflow.compiler.graph.callbacks import (
    SOLVE,
    as_callback,
    as_operation,
    callbacks_inside,
    check_effects,
    has_callback,
    is_callback,
)
from jflow.compiler.graph.libraries import program_of
from jflow.compiler.graph.primitives import (
    ACCESSES,
    WRITES,
    VariableRef,
    WriteEffect,
    is_stateful_control_flow,
    read_p,
    state_of,
)
from jflow.compiler.graph.request import Request
from jflow.plan.xla import internals, jaxprs
from jflow.plan.xla.jaxprs import Atom

_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",  # since JAX 0.12
}
_RULES = {
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
}
_CHECKPOINTS = ("checkpoint", "remat2")
_CONTROL_FLOW = {
    "scan": ("jaxpr",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
}
"""Loops and branches that may request several devices, with the parameters that have bodies."""

WRITE_REFUSED = (
    "JAX does not guarantee to run it exactly once per iteration; return the value (as the carry "
    "of a loop, the result of a branch or of a checkpointed function) and write once outside"
)


def hoist_state(closed: jex.ClosedJaxpr, *, keep_rules: bool = False) -> jex.ClosedJaxpr:
    """Returns the program with all accesses to variables and all callbacks at its top level.

    Args:
      closed: a program from `jax.make_jaxpr`.
      keep_rules: whether to keep calls with custom derivative rules, because derivatives follow.

    Raises:
      NotImplementedError: if a variable is used or a device is requested where that is not
        supported, or if an equation has unsupported effects.
    """
    _refuse_given_refs(closed)
    if not keep_rules and any(map(internals.uses_refs, closed.eqns)):
        closed = internals.without_refs(closed)
    return _run(_Flattener(keep_rules), closed)


def _refuse_given_refs(closed: jex.ClosedJaxpr) -> None:
    given = internals.refs_given(closed)
    for eqn in closed.eqns if given else ():
        if any(x is var for x in eqn.invars for var in given):
            raise NotImplementedError(
                f"{eqn.primitive.name!r} (at {origin.line_of(eqn)}) uses a jax.Ref that the "
                "function has not made; pass its value, ref[...], and return the new one: a "
                "jax.Ref is made and used within one function"
            )


def _run(flat: _Flattener, closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    if not any(map(flat.changes, closed.eqns)):
        return closed
    jaxpr = closed.jaxpr
    outputs = jaxprs.inline(jaxpr, jaxpr.constvars, jaxpr.invars, flat.emit)
    consts = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    return jaxprs.close(jaxpr.invars, outputs, flat.eqns, consts | flat.consts)


def is_control_flow(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation is a loop or branch that a step can open (`opening.py`)."""
    return eqn.primitive.name in _CONTROL_FLOW


def spans_devices(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation is a loop or branch whose body requests several devices."""
    return is_control_flow(eqn) and len(request.requests_in_bodies(eqn)) > 1


def _is_nested(eqn: jex.JaxprEqn) -> bool:
    if state_of(eqn) or is_stateful_control_flow(eqn):
        return False  # the body of an update is part of it, and the others are opened
    if not _bodies(eqn):
        return False
    if _uses_state(eqn):
        return True
    return bool(request.whole_requests_in_bodies(eqn) - {request.requested(eqn)})


def _bodies(eqn: jex.JaxprEqn) -> list[jex.Jaxpr]:
    return list(jex.jaxprs_in_params(eqn.params))


def _uses_state(eqn: jex.JaxprEqn) -> bool:
    return any(
        bool(state_of(inner)) or _uses_state(inner) for body in _bodies(eqn) for inner in body.eqns
    )


def _requested(eqn: jex.JaxprEqn) -> list[Request]:
    """Returns the distinct non-empty requests of an equation and of its nested equations."""
    return request.distinct((*request.whole_requests_in_bodies(eqn), request.requested(eqn)))


class _Flattener:
    """Builds the flat program, equation by equation.

    Args:
      keep_rules: see `hoist_state`.
      in_loop: whether the program is the body of a loop, where callbacks are not hoisted.
      outer: the equation that the program is a body of.

    Attributes:
      eqns: the equations so far.
      consts: values of constants of inlined calls.
    """

    def __init__(
        self, keep_rules: bool, in_loop: bool = False, outer: jex.JaxprEqn | None = None
    ) -> None:
        self._keep_rules = keep_rules
        self._in_loop = in_loop
        self._outer = outer
        self.eqns: list[jex.JaxprEqn] = []
        self.consts: dict[jex.Var, Any] = {}
        self._read_so_far: set[VariableRef] = set()
        self._written_since: dict[VariableRef, str] = {}

    def changes(self, eqn: jex.JaxprEqn) -> bool:
        """Whether an equation must be changed."""
        if not self._in_loop:
            check_effects(eqn)
            if is_callback(eqn) or self._is_cut(eqn) or as_callback(eqn) is not None:
                return True
        return _is_nested(eqn)

    def _is_cut(self, eqn: jex.JaxprEqn) -> bool:
        """Whether an equation must be inlined or divided because it contains a callback."""
        if self._in_loop or not has_callback(eqn):
            return False
        name = eqn.primitive.name
        if name in _RULES or name == SOLVE or program_of(eqn) is not None:
            return not self._keep_rules
        if name == "cond":
            return not spans_devices(eqn)
        return name in (*_CALLS, *_CHECKPOINTS)

    def emit(self, eqn: jex.JaxprEqn, args: list[Atom]) -> Sequence[Atom]:
        name = eqn.primitive.name
        if self._outer is not None:
            eqn = origin.inside(eqn, self._outer)
        if eqn.primitive in ACCESSES:
            self._note(eqn)
        if not self._in_loop:
            check_effects(eqn)
            callback = eqn if is_callback(eqn) else as_callback(eqn)
            if callback is not None:
                return self._append(as_operation(callback), args)
        is_cut = self._is_cut(eqn)
        if not is_cut and not _is_nested(eqn):
            return self._append(eqn, args)
        if is_cut and name == SOLVE:
            return self._solve(eqn, args)
        program = self._program(eqn)
        if program is not None:
            return self._open(eqn, program, args)
        _refuse_writes(eqn)
        self._check_recomputed(eqn)
        if name in _CHECKPOINTS:
            return self._checkpoint(eqn, args, is_cut)
        return self._control_flow(eqn, args, is_cut)

    def _program(self, eqn: jex.JaxprEqn) -> jex.ClosedJaxpr | None:
        """Returns the program that an equation calls, or None."""
        name = eqn.primitive.name
        if name in _CALLS:
            return eqn.params[_CALLS[name]]  # type: ignore[no-any-return]
        if name in _RULES:
            self._check_rule(eqn)
            return eqn.params[_RULES[name]]  # type: ignore[no-any-return]
        return program_of(eqn)

    def _append(self, eqn: jex.JaxprEqn, args: list[Atom]) -> list[jex.Var]:
        outvars = [jex.Var(var.aval) for var in eqn.outvars]
        self.eqns.append(eqn.replace(invars=args, outvars=outvars))
        return outvars

    def _open(self, eqn: jex.JaxprEqn, body: jex.ClosedJaxpr, args: list[Atom]) -> list[Atom]:
        consts = [jex.Var(var.aval) for var in body.jaxpr.constvars]
        self.consts.update(zip(consts, body.consts, strict=True))
        outer, self._outer = self._outer, eqn
        outputs = jaxprs.inline(body.jaxpr, consts, args, self.emit)
        self._outer = outer
        return outputs

    def _solve(self, eqn: jex.JaxprEqn, args: list[Atom]) -> list[Atom]:
        """Inlines a `custom_linear_solve`, which without its derivative rule is just its solver."""
        lengths = eqn.params["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        consts = args[first : first + lengths.solve]
        return self._open(eqn, eqn.params["jaxprs"].solve, [*consts, *args[sum(lengths) :]])

    def _check_rule(self, eqn: jex.JaxprEqn) -> None:
        if self._keep_rules and _uses_state(eqn):
            raise NotImplementedError(
                f"a function with a custom derivative rule uses a variable in graph code (at "
                f"{origin.line_of(eqn)}), which would lose the rule; read the variable outside "
                "and pass its value as an argument"
            )

    def _checkpoint(self, eqn: jex.JaxprEqn, args: list[Atom], is_cut: bool) -> Sequence[Atom]:
        if is_cut or len(_requested(eqn)) > 1:
            # A checkpoint on several devices is dropped: it only saves memory.
            return self._open(eqn, jex.ClosedJaxpr(eqn.params["jaxpr"], []), args)
        return self._control_flow(eqn, args)

    def _note(self, eqn: jex.JaxprEqn) -> None:
        ref = eqn.params["variable"]
        if eqn.primitive is read_p:
            self._read_so_far.add(ref)
        elif eqn.primitive in WRITES and ref in self._read_so_far:
            self._written_since[ref] = origin.line_of(eqn)

    def _check_recomputed(self, eqn: jex.JaxprEqn) -> None:
        """Checks that a backward pass reads the same values of variables as the forward pass."""
        for checkpoint in _recomputations(eqn):
            for ref, reading in _reads_inside(checkpoint).items():
                if ref in self._written_since:
                    raise NotImplementedError(
                        f"{ref} is read inside jax.checkpoint (at {origin.line_of(reading)}) and "
                        f"written at {self._written_since[ref]}, before the backward pass reads it "
                        "again; read it outside of the checkpointed function and pass the value "
                        "as an argument"
                    )

    def _control_flow(
        self, eqn: jex.JaxprEqn, args: list[Atom], is_cut: bool = False
    ) -> Sequence[Atom]:
        reads = _reads_inside(eqn)
        if reads:
            rewrite = _REWRITES.get(eqn.primitive.name)
            if rewrite is None:
                raise NotImplementedError(
                    f"reading {next(iter(reads))} inside of {eqn.primitive.name!r} (at "
                    f"{origin.line_of(eqn)}) is not supported; read it outside and pass its value "
                    "as an argument"
                )
            values = {ref: self._read(ref, reading) for ref, reading in reads.items()}
            params, args = rewrite(eqn.params, args, values)
            eqn = eqn.replace(params=params)
        if is_cut:
            flat = [
                _run(_Flattener(self._keep_rules, outer=eqn), branch)
                for branch in eqn.params["branches"]
            ]
            return branches.cut(eqn, args, flat, self.consts, self._piece)
        if spans_devices(eqn):
            return self._append(self._spanning(eqn), args)
        return self._append(_on_one_device(eqn), args)

    def _spanning(self, eqn: jex.JaxprEqn) -> jex.JaxprEqn:
        """Returns a loop or branch on several devices, whose equations request one each."""
        called = {effect for inner in callbacks_inside(eqn) for effect in inner.effects}
        if refused := eqn.effects - called:
            raise NotImplementedError(
                f"{eqn.primitive.name!r} (at {origin.line_of(eqn)}) requests several devices, and "
                f"has the effects {sorted(map(str, refused))}, which only one on one device "
                "may have; put one jflow.device block around it"
            )

        def flat(body: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
            return _run(_Flattener(self._keep_rules, in_loop=True, outer=eqn), body)

        bodies = {
            name: tuple(map(flat, body)) if isinstance(body, tuple) else flat(body)
            for name, body in (
                (name, eqn.params[name]) for name in _CONTROL_FLOW[eqn.primitive.name]
            )
        }
        opened: jex.JaxprEqn = eqn.replace(params=eqn.params | bodies)
        return opened

    def _piece(self, eqn: jex.JaxprEqn, args: list[Atom]) -> Sequence[Atom]:
        """Emits a conditional or other piece of one that was split around its callbacks."""
        is_branch = eqn.primitive.name == "cond"
        return self._append(_on_one_device(eqn) if is_branch else eqn, args)

    def _read(self, ref: VariableRef, eqn: jex.JaxprEqn) -> jex.Var:
        self._note(eqn)
        var = jex.Var(ref.aval)
        self.eqns.append(eqn.replace(outvars=[var]))
        return var


def _refuse_writes(eqn: jex.JaxprEqn) -> None:
    for body in _bodies(eqn):
        for effect in body.effects:
            if isinstance(effect, WriteEffect):
                raise NotImplementedError(
                    f"{effect} is inside {eqn.primitive.name!r}: {WRITE_REFUSED}"
                )


def _reads_inside(eqn: jex.JaxprEqn) -> dict[VariableRef, jex.JaxprEqn]:
    """Returns the variables that nested equations read, each with one such equation."""
    reads: dict[VariableRef, jex.JaxprEqn] = {}
    for body in _bodies(eqn):
        for inner in body.eqns:
            if inner.primitive is read_p:
                reads.setdefault(inner.params["variable"], inner)
            for ref, deeper in _reads_inside(inner).items():
                reads.setdefault(ref, deeper)
    return reads


def _recomputations(eqn: jex.JaxprEqn) -> Iterator[jex.JaxprEqn]:
    """Yields the differentiated checkpoints among an equation and its nested equations."""
    if eqn.primitive.name in _CHECKPOINTS and eqn.params["differentiated"]:
        yield eqn
    else:
        for body in _bodies(eqn):
            for inner in body.eqns:
                yield from _recomputations(inner)


def _on_one_device(eqn: jex.JaxprEqn) -> jex.JaxprEqn:
    """Returns the equation with the only device request in it. Raises if there are several."""
    # The request of the body takes precedence: under jax.checkpoint, JAX gives a forward loop
    # the request of the code around the checkpoint.
    requested = request.requests_in_bodies(eqn) or _requested(eqn)
    if len(requested) > 1:
        raise NotImplementedError(
            f"{eqn.primitive.name!r} (at {origin.line_of(eqn)}) runs on one device as a whole, but "
            f"its equations request {' and '.join(map(str, requested))}; put one jflow.device "
            "block around it, or move the code for other devices out of it"
        )
    return request.replaced(eqn, requested[0]) if requested else eqn


# Passing the values of variables into loops and branches ------------------------------------------

Params = dict[str, Any]
Values = dict[VariableRef, jex.Var]
Rewrite = Callable[[Params, list[Atom], Values], tuple[Params, list[Atom]]]
"""Passes variables' values into an equation, given its parameters and arguments."""


def _with_value_arguments(body: jex.ClosedJaxpr, values: Values) -> jex.ClosedJaxpr:
    """Returns the body with the values of variables as additional leading arguments."""
    flat = _run(_Flattener(keep_rules=False, in_loop=True), body)
    inside = {ref: jex.Var(ref.aval) for ref in values}
    eqns: list[jex.JaxprEqn] = []

    def emit(eqn: jex.JaxprEqn, args: list[Atom]) -> Sequence[Atom]:
        if eqn.primitive is read_p:
            return [inside[eqn.params["variable"]]]
        outvars = [jex.Var(var.aval) for var in eqn.outvars]
        eqns.append(eqn.replace(invars=args, outvars=outvars))
        return outvars

    jaxpr = flat.jaxpr
    outputs = jaxprs.inline(jaxpr, jaxpr.constvars, jaxpr.invars, emit)
    consts = dict(zip(jaxpr.constvars, flat.consts, strict=True))
    return jaxprs.close([*inside.values(), *jaxpr.invars], outputs, eqns, consts)


def _scan(params: Params, args: list[Atom], values: Values) -> tuple[Params, list[Atom]]:
    body = {"jaxpr": _with_value_arguments(params["jaxpr"], values)}
    taking = internals.scan_with_constants(params, len(values))
    return taking | body, [*values.values(), *args]


def _while(params: Params, args: list[Atom], values: Values) -> tuple[Params, list[Atom]]:
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    taking = {
        "cond_jaxpr": _with_value_arguments(params["cond_jaxpr"], values),
        "body_jaxpr": _with_value_arguments(params["body_jaxpr"], values),
        "cond_nconsts": n_cond + len(values),
        "body_nconsts": n_body + len(values),
    }
    inputs = values.values()
    return params | taking, [*inputs, *args[:n_cond], *inputs, *args[n_cond:]]


def _cond(params: Params, args: list[Atom], values: Values) -> tuple[Params, list[Atom]]:
    index, *operands = args
    branches = tuple(_with_value_arguments(branch, values) for branch in params["branches"])
    return params | {"branches": branches}, [index, *values.values(), *operands]


def _checkpoint(params: Params, args: list[Atom], values: Values) -> tuple[Params, list[Atom]]:
    body = _with_value_arguments(jex.ClosedJaxpr(params["jaxpr"], []), values)
    if body.consts:
        raise NotImplementedError(
            "a function under jax.checkpoint that reads a variable and has constant arrays is not "
            "supported; read the variable outside and pass its value as an argument"
        )
    return params | {"jaxpr": body.jaxpr}, [*values.values(), *args]


_REWRITES: dict[str, Rewrite] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    **dict.fromkeys(_CHECKPOINTS, _checkpoint),
}
