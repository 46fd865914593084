"""Lowering of a segment to one pure jaxpr: state becomes arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import jax
import jax.experimental.xla_metadata
import jax.extend.core as jex
import numpy as np
from jax import lax

from jflow.base.cluster import Axes
from jflow.base.values import Array, to_physical, unwrapping, wrapping
from jflow.compiler.graph import Operation, Tensor, VariableRef
from jflow.compiler.graph.bundle import Bundle
from jflow.compiler.graph.primitives import assign_p, constant_p, initialize_p, read_p, update_p
from jflow.compiler.graph.text import program_text, signature
from jflow.compiler.lowering.limits import check_limits, without_devices
from jflow.compiler.lowering.sizes import with_equal_sizes
from jflow.plan import EqualSizes
from jflow.plan.xla import jaxprs
from jflow.plan.xla.jaxprs import allow_64_bits, have_64_bits

MIN_APART = 8
"""So many tensors are joined apart from the operations that make them; XLA can fuse fewer."""


def bundling(bundle: Bundle, *, for_cpu: bool) -> jex.ClosedJaxpr:
    """Returns a program that packs the tensors of a bundle into one array.

    On a CPU, XLA would compile each tensor with its part of the joining, as a kernel of its own in
    some 30 ms, although many of them are the same but for a constant. A function that it must not
    inline keeps the two apart, so that equal kernels are compiled once.
    """
    is_apart = for_cpu and len(bundle.tensors) >= MIN_APART
    join = _without_inlining(_joined) if is_apart else _joined
    return jax.make_jaxpr(join)(*(jaxprs.shape_of(tensor.aval) for tensor in bundle.tensors))


def _joined(*values: jax.Array) -> jax.Array:
    return lax.concatenate([lax.reshape(x, (x.size,)) for x in values], 0)


def _without_inlining(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Wraps a function so that XLA does not inline it."""

    def called(*values: jax.Array) -> jax.Array:
        with jax.experimental.xla_metadata.set_xla_metadata(inlineable="false"):
            whole: jax.Array = jax.jit(function)(*values)
        return whole

    return called


def unbundling(bundle: Bundle, wanted: Collection[Tensor]) -> jex.ClosedJaxpr:
    """Returns a program that unpacks the wanted tensors of a bundle, in their order in it."""
    places = zip(bundle.tensors, accumulate(bundle.sizes, initial=0), bundle.sizes, strict=False)

    def unbundle(whole: jax.Array) -> list[jax.Array]:
        return [
            lax.reshape(lax.slice(whole, (start,), (start + size,)), tensor.shape)
            for tensor, start, size in places
            if tensor in wanted
        ]

    return jax.make_jaxpr(unbundle)(jaxprs.shape_of(bundle.aval))


HOISTED_BYTES = 16 * 1024
"""Constants of at least this size are arguments of the program, so that they are sent once."""


@dataclass(frozen=True)
class Lowered:
    """A segment lowered to a program.

    Attributes:
      jaxpr: the program.
      constants: the values of its last arguments.
      ops: the operations that it computes, for messages.
      sizes: the sizes of inputs that have to be equal.
      axes: those of the mesh that it runs on; empty for one device.
      starts: for each operation the number of its first equation in the program.
    """

    jaxpr: jex.ClosedJaxpr
    constants: tuple[Array, ...]
    ops: tuple[Operation, ...]
    sizes: tuple[EqualSizes, ...] = ()
    axes: Axes = ()
    starts: tuple[int, ...] = ()

    @property
    def signature(self) -> str:
        """Argument and result types, such as "(float32 (None, 3)) -> (float32 (3,))"."""
        return signature(self.jaxpr)

    def text(self) -> str:
        """Returns the program as readable text, one equation per line."""
        return program_text(self.jaxpr)


@dataclass
class _Body:
    """The program under construction: its equations, and atoms for the values of the graph.

    A value that is `given` is an input, even if an operation of the segment computes it: it is fed.
    """

    given: frozenset[Any]
    for_cpu: bool
    axes: Axes
    eqns: list[jex.JaxprEqn] = field(default_factory=list)
    known: dict[Any, jaxprs.Atom] = field(default_factory=dict)
    consts: dict[Any, Array] = field(default_factory=dict)
    hoisted: dict[Any, Array] = field(default_factory=dict)
    current: dict[VariableRef, jaxprs.Atom] = field(default_factory=dict)

    def atom(self, x: jaxprs.Atom) -> jaxprs.Atom:
        return x if isinstance(x, jex.Literal) else self.known.get(x, x)

    def emit(self, eqn: jex.JaxprEqn, args: list[jaxprs.Atom]) -> list[jaxprs.Atom]:
        outvars = [jex.Var(var.aval) for var in eqn.outvars]
        self.eqns.append(eqn.replace(invars=args, outvars=outvars))
        return outvars

    def _copy(self, x: jaxprs.Atom) -> jaxprs.Atom:
        """Copies a value: a result must not share memory with an argument or another result."""
        var = jex.Var(x.aval)
        copy_p = jex.primitives.copy_p
        self.eqns.append(jex.new_jaxpr_eqn([x], [var], copy_p, {}, jex.no_effects))
        return var

    def arrive(self, var: jex.Var) -> tuple[jex.Var, jaxprs.Atom]:
        """Makes an argument in the physical form of `var`; returns it and an atom for its value."""
        wrap = wrapping(var.aval)
        if wrap is None:
            return var, var
        physical = jex.Var(wrap.in_avals[0])
        (value,) = jaxprs.inline(wrap.jaxpr, wrap.consts, [physical], self.emit)
        return physical, value

    def old_value(self, ref: VariableRef) -> jex.Var:
        """Makes an argument for the old value of a variable."""
        var, self.current[ref] = self.arrive(jex.Var(ref.aval))
        return var

    def take(self, value: Tensor | Bundle, ops: Sequence[Operation]) -> jex.Var:
        """Makes an argument for a tensor, or for a bundle of tensors that operations use."""
        if isinstance(value, Bundle):
            return self._open(value, ops)
        var, self.known[value.var] = self.arrive(value.var)
        return var

    def _open(self, bundle: Bundle, ops: Sequence[Operation]) -> jex.Var:
        """Makes an argument for a bundle, and unpacks the tensors that the operations use."""
        whole = jex.Var(bundle.aval)
        used = {tensor for op in ops for tensor in op.inputs}
        wanted = [tensor for tensor in bundle.tensors if tensor in used]
        parts = jaxprs.inline(unbundling(bundle, used).jaxpr, (), [whole], self.emit)
        self.known.update(zip((tensor.var for tensor in wanted), parts, strict=True))
        return whole

    def result(self, value: Tensor | Bundle) -> jaxprs.Atom:
        """Returns an atom for a tensor or bundle as a result of the program."""
        if isinstance(value, Tensor):
            return self.atom(value.var)
        parts = [self.atom(tensor.var) for tensor in value.tensors]
        joining = bundling(value, for_cpu=self.for_cpu)
        (whole,) = jaxprs.inline(joining.jaxpr, (), parts, self.emit)
        return whole

    def leave_apart(self, results: Sequence[jaxprs.Atom], invars: Sequence[jex.Var]) -> list[Any]:
        """Returns variables for the physical forms of results, none of which shares memory."""
        names_in_use, outvars = set(invars), []
        for result in map(self._leave, results):
            is_literal = isinstance(result, jex.Literal)
            shared = is_literal or result in names_in_use or result in self.consts
            outvars.append(self._copy(result) if shared else result)
            names_in_use.add(outvars[-1])
        return outvars

    def _leave(self, x: jaxprs.Atom) -> jaxprs.Atom:
        """Returns an atom for the physical form of a value."""
        unwrap = unwrapping(x.aval)
        if unwrap is None:
            return x
        (physical,) = jaxprs.inline(unwrap.jaxpr, unwrap.consts, [x], self.emit)
        return physical

    def add(self, op: Operation) -> None:
        eqn = without_devices(op, self.axes)
        primitive, params = eqn.primitive, eqn.params
        args = [self.atom(x) for x in op.eqn.invars]
        if primitive is constant_p:
            var = op.eqn.outvars[0]
            self.known[var] = self.constant(var, params["value"])
        elif primitive is read_p:
            # A read whose value only leaves the segment is not part of the program.
            if params["variable"] in self.current:
                self.known[op.eqn.outvars[0]] = self.current[params["variable"]]
        elif primitive in (assign_p, initialize_p):
            self._set(op, args[0])
        elif primitive is update_p:
            body: jex.ClosedJaxpr = params["body"]
            old = self.current[params["variable"]]
            pairs = zip(body.jaxpr.constvars, body.consts, strict=True)
            consts = [self.constant(var, np.asarray(to_physical(x))) for var, x in pairs]
            (new,) = jaxprs.inline(body.jaxpr, consts, [old, *args], self.emit)
            self._set(op, new)
        else:
            outvars = [jex.Var(x.aval) if x in self.given else x for x in op.eqn.outvars]
            self.eqns.append(eqn.replace(invars=args, outvars=outvars))

    def _set(self, op: Operation, value: jaxprs.Atom) -> None:
        self.current[op.eqn.params["variable"]] = value
        if op.eqn.outvars[0] not in self.given:
            self.known[op.eqn.outvars[0]] = value

    def constant(self, like: jex.Var, value: Array) -> jaxprs.Atom:
        """Adds a constant, given in its physical form; returns an atom of the type of `like`."""
        physical, atom = self.arrive(jex.Var(like.aval))
        (self.hoisted if value.nbytes >= HOISTED_BYTES else self.consts)[physical] = value
        return atom


def lower(
    ops: Sequence[Operation],
    reads: Sequence[VariableRef],
    inputs: Sequence[Tensor | Bundle],
    writes: Sequence[VariableRef],
    outputs: Sequence[Tensor | Bundle],
    *,
    for_cpu: bool = True,
    axes: Axes = (),
) -> Lowered:
    """Lowers a segment to a program.

    The program takes the old values of `reads`, then `inputs`, then constants, and returns the new
    values of `writes`, then `outputs`, all in their physical form (`values/physical.py`). A result
    shares memory with an argument only if the argument is donated.

    Args:
      ops: the segment's operations in the graph's order.
      reads, inputs, writes, outputs: as above.
      for_cpu: whether it runs on a CPU.
      axes: those of the mesh that it runs on; empty for one device.

    Raises:
      InvalidArgumentError: if an operation is larger or deeper than XLA can compile, or requires
        another mesh.
    """
    tensors = (tensor for op in ops for tensor in (*op.inputs, *op.outputs))
    with allow_64_bits(have_64_bits(tensor.aval for tensor in tensors)):
        given = frozenset(one.var for one in inputs if isinstance(one, Tensor))
        body = _Body(given, for_cpu, axes)
        invars = [body.old_value(ref) for ref in reads] + [body.take(one, ops) for one in inputs]
        starts = []
        for op in ops:
            check_limits(op)
            starts.append(len(body.eqns))
            body.add(op)
        invars.extend(body.hoisted)
        results = [body.current[ref] for ref in writes] + [body.result(one) for one in outputs]
        outvars = body.leave_apart(results, invars)
        program = jaxprs.close(invars, outvars, body.eqns, body.consts)
        program, sizes = with_equal_sizes(program, ops, inputs)
        constants = tuple(body.hoisted.values())
        return Lowered(program, constants, tuple(ops), sizes, axes, tuple(starts))
