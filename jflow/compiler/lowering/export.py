"""Exports segments to bytes that depend only on what the segments compute.

The same program of two users, in two files, for two devices of one kind, must be the same bytes, so
that a server compiles it once. Source locations, name stacks and placement metadata are therefore
removed from every equation before JAX lowers it, and symbols for unknown sizes, which are numbered
by process, get canonical names.

What is left is a key, too (`jflow.plan.xla.structure`), by which a program that was exported before
is found: to export even a small one takes longer than to open a session and run a step.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from contextlib import suppress
from functools import partial
from typing import Any

import jax
import jax.extend.core as jex

from jflow.base.cluster import Axes
from jflow.base.values import Array, canonical_sizes, symbols_in
from jflow.compiler.graph import request
from jflow.plan.xla import internals, jaxprs
from jflow.plan.xla.export import serialize
from jflow.plan.xla.jaxprs import allow_64_bits, needs_64_bits
from jflow.plan.xla.shared_cache import SharedCache
from jflow.plan.xla.structure import structure_of

_WORD = re.compile(r"\w+")

_SLICES = {
    "slice": "limit_indices",
    "dynamic_slice": "slice_sizes",
    "gather": "slice_sizes",
}
"""The parameter of each primitive that takes slices, of at most the size of the operand."""

N_KEPT = 128
"""How many exported programs a process keeps, those that were used last."""

EXPORTED: SharedCache[Hashable, Array] = SharedCache(N_KEPT)
"""The exported programs of this process."""


def export(jaxpr: jex.ClosedJaxpr, platform: str, axes: Axes = ()) -> Array:
    """Exports a program for one platform as u8[n]. Arguments and errors as in `serialize`.

    It is exported once, as long as it is kept, whatever graphs it is of.
    """
    with allow_64_bits(needs_64_bits(jaxpr.jaxpr)):
        return _exported(jaxpr, platform, axes)


def _exported(jaxpr: jex.ClosedJaxpr, platform: str, axes: Axes) -> Array:
    stripped = jaxprs.Rewriting(_Stripper()).jaxpr(jaxpr.jaxpr)
    stripped_program = jex.ClosedJaxpr(stripped, jaxpr.consts)
    rename = canonical_sizes(aval.shape for aval in stripped_program.in_avals)
    if rename is not None:
        # An opaque parameter may hide a symbol. JAX refuses to export such a program, because no
        # argument determines a size of that name; it is then exported with its own symbols.
        with suppress(Exception):
            return _serialized(jaxprs.Resizing(rename).closed(stripped_program), platform, axes)
        return serialize(stripped_program, platform, axes)
    key = structure_of(stripped_program), platform, axes, internals.trace_context()
    return EXPORTED.get(key, partial(serialize, stripped_program, platform, axes))


def _serialized(program: jex.ClosedJaxpr, platform: str, axes: Axes) -> Array:
    """Serializes a program of unknown sizes, of which as many as possible may be zero.

    For JAX a symbol is at least 1. A size that may be zero is therefore one less than a symbol, if
    the rules of the program's equations do not need to know that it is not zero.
    """
    sizes = (dim for aval in program.in_avals for dim in aval.shape)
    may_be_zero = {str(symbol) for dim in sizes for symbol in symbols_in(dim)}
    while may_be_zero:
        resizing = jaxprs.Resizing(internals.with_smaller_symbols(may_be_zero))
        try:
            resized = resizing.closed(program)
            _check_slices(resized.jaxpr)
            return serialize(resized, platform, axes)
        except jax.errors.InconclusiveDimensionOperation as error:
            named = may_be_zero.intersection(_WORD.findall(str(error).partition("\n")[0]))
            may_be_zero -= named or may_be_zero
    return serialize(program, platform, axes)


def _check_slices(jaxpr: jex.Jaxpr) -> None:
    """Raises InconclusiveDimensionOperation if a slice may be larger than what it is taken of.

    JAX has compared them where it traced the program, with sizes of at least 1.
    """
    for eqn in jaxpr.eqns:
        if (name := _SLICES.get(eqn.primitive.name)) is not None:
            operand: Any = eqn.invars[0].aval
            for size, taken in zip(operand.shape, eqn.params[name], strict=True):
                _ = size >= taken  # it raises
        for inner in jex.jaxprs_in_params(eqn.params):
            _check_slices(inner)


class _Stripper:
    """Removes source information and device requests from equations."""

    def __init__(self) -> None:
        # JAX makes equal contexts once, so there are few.
        self._contexts: dict[Any, Any] = {}

    def __call__(self, eqn: jex.JaxprEqn) -> jex.JaxprEqn:
        origin = eqn.source_info
        no_location = origin.replace(traceback=None, name_stack=type(origin.name_stack)())
        stripped: jex.JaxprEqn = eqn.replace(source_info=no_location, ctx=self._context(eqn.ctx))
        return stripped

    def _context(self, context: Any) -> Any:
        if context not in self._contexts:
            self._contexts[context] = request.context_with(context, None)
        return self._contexts[context]
