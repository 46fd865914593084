"""The refusal of callbacks in programs that run in another process than the client's."""

from __future__ import annotations

from collections.abc import Iterable

from jflow.errors import UnimplementedError
from jflow.graph import Operation, origin
from jflow.graph.callbacks import callbacks_inside, has_callback


def refuse_callbacks(ops: Iterable[Operation]) -> None:
    """Refuses operations that call Python functions from inside of an XLA program.

    Raises:
      UnimplementedError: names the operation, the line of the call, and what to do instead.
    """
    for op in ops:
        if has_callback(op.eqn):
            inner = next(callbacks_inside(op.eqn))
            raise UnimplementedError(
                f"{op.name!r} is a {op.type!r} with a {inner.primitive.name!r} in it (at "
                f"{origin.line_of(inner)}); it is one XLA program on its server, which cannot call "
                "a Python function of the client; return the value and call the function after "
                "it, run it in a local session, or set EQX_ON_ERROR=nan if it is a check of "
                "Equinox",
                op=op.name,
            )
