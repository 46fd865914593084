"""Programs that make bundles, and take them apart: their first or last equations."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import accumulate

import jax
import jax.experimental.xla_metadata
import jax.extend.core as jex
from jax import lax

from jflow.compiler.graph import Tensor
from jflow.compiler.graph.bundle import Bundle
from jflow.plan.xla import jaxprs

MIN_APART = 8
"""So many tensors are joined apart from the operations that make them; XLA can fuse fewer."""


def bundling(bundle: Bundle, *, for_cpu: bool) -> jex.ClosedJaxpr:
    """Returns a program from the tensors of a bundle to the bundle.

    On a CPU, XLA would compile each tensor with its part of the joining, as a kernel of its own in
    some 30 ms, although many of them are the same but for a constant. A function that it must not
    inline keeps the two apart, so that equal kernels are compiled once.
    """
    is_apart = for_cpu and len(bundle.tensors) >= MIN_APART
    join = _apart(_joined) if is_apart else _joined
    return jax.make_jaxpr(join)(*(jaxprs.shape_of(tensor.aval) for tensor in bundle.tensors))


def _joined(*values: jax.Array) -> jax.Array:
    return lax.concatenate([lax.reshape(x, (x.size,)) for x in values], 0)


def _apart(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """The same function, which XLA does not inline."""

    def called(*values: jax.Array) -> jax.Array:
        with jax.experimental.xla_metadata.set_xla_metadata(inlineable="false"):
            whole: jax.Array = jax.jit(function)(*values)
        return whole

    return called


def unbundling(bundle: Bundle, wanted: Collection[Tensor]) -> jex.ClosedJaxpr:
    """Returns a program from a bundle to those of its tensors that are wanted, in their order."""
    places = zip(bundle.tensors, accumulate(bundle.sizes, initial=0), bundle.sizes, strict=False)

    def taken(whole: jax.Array) -> list[jax.Array]:
        return [
            lax.reshape(lax.slice(whole, (start,), (start + size,)), tensor.shape)
            for tensor, start, size in places
            if tensor in wanted
        ]

    return jax.make_jaxpr(taken)(jaxprs.shape_of(bundle.aval))
