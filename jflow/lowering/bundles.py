"""Programs that make bundles, and take them apart: their first or last equations."""

from __future__ import annotations

from collections.abc import Collection
from itertools import accumulate

import jax
import jax.extend.core as jex
from jax import lax

from jflow.graph import Tensor
from jflow.graph.bundle import Bundle
from jflow.xla import jaxprs


def bundling(bundle: Bundle) -> jex.ClosedJaxpr:
    """Returns a program from the tensors of a bundle to the bundle."""

    def joined(*values: jax.Array) -> jax.Array:
        return lax.concatenate([lax.reshape(x, (x.size,)) for x in values], 0)

    return jax.make_jaxpr(joined)(*(jaxprs.shape_of(tensor.aval) for tensor in bundle.tensors))


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
