"""Segments as bytes: StableHLO without authors, source locations and devices.

The same program of two users, from two files, for two devices of one kind, must be the same bytes,
so that a server compiles it once. Source locations, name stacks and placement metadata are
therefore taken out of every equation before JAX lowers it.
"""

from __future__ import annotations

from typing import Any

import jax.extend.core as jex

from jflow.graph import request
from jflow.values import Array
from jflow.xla import jaxprs
from jflow.xla.export import serialize


def export(jaxpr: jex.ClosedJaxpr, platform: str) -> Array:
    """The program as u8[n] for one platform. Arguments and errors are those of `serialize`."""
    bare = jaxprs.Rewriting(_Stripper()).jaxpr(jaxpr.jaxpr)
    return serialize(jex.ClosedJaxpr(bare, jaxpr.consts), platform)


class _Stripper:
    """Removes the origin and the device request from equations."""

    def __init__(self) -> None:
        # JAX makes equal contexts once, so there are few.
        self._contexts: dict[Any, Any] = {}

    def __call__(self, eqn: jex.JaxprEqn) -> jex.JaxprEqn:
        origin = eqn.source_info
        bare = origin.replace(traceback=None, name_stack=type(origin.name_stack)())
        stripped: jex.JaxprEqn = eqn.replace(source_info=bare, ctx=self._context(eqn.ctx))
        return stripped

    def _context(self, context: Any) -> Any:
        if context not in self._contexts:
            self._contexts[context] = request.context_with(context, None)
        return self._contexts[context]
