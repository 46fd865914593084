"""Refusal of callbacks in programs that run outside of the client's process."""

from __future__ import annotations

from collections.abc import Iterable

from jflow.compiler.graph import Operation, origin
from jflow.compiler.graph.callbacks import callbacks_inside, has_callback
from jflow.errors import UnimplementedError


def refuse_callbacks(ops: Iterable[Operation]) -> None:
    """Refuses operations that call Python functions from inside an XLA program.

    Raises:
      UnimplementedError: with the operation, the line of the call, and a remedy.
    """
    for op in ops:
        if has_callback(op.eqn):
            inner = next(callbacks_inside(op.eqn))
            # JAX batches some callbacks in frames of its own.
            line = origin.line_of(inner) or origin.line_of(op.eqn) or op.origin
            raise UnimplementedError(
                f"{op.name!r} is a {op.type!r} that contains a {inner.primitive.name!r} (at "
                f"{line}); it runs on a server as one XLA program, which cannot "
                "call a Python function of the client; return the value and call the function "
                "after it, use a local session, or set EQX_ON_ERROR=nan if it is a check of "
                "Equinox",
                op=op.name,
            )
