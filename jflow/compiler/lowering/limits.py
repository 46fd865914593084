"""Refusal of operations that no server compiles, with the user's line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import jax.extend.core as jex
import numpy as np

from jflow.base.values import is_known
from jflow.compiler.graph import Operation, origin
from jflow.compiler.graph.callbacks import callbacks_inside, has_callback
from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.plan.xla.modules import MAX_BYTES, MAX_DEPTH


def check_limits(op: Operation) -> None:
    """Refuses an operation with values too large, or branches and loops too deep, for XLA.

    XLA aborts the process that compiles it.

    Raises:
      InvalidArgumentError: with the operation and the line of the equation.
    """
    _Limits(op).check(op.eqn, 0)


class _Limits:
    """The check of one operation; each nested jaxpr is looked at once for each depth."""

    def __init__(self, op: Operation) -> None:
        self._op = op
        self._checked: dict[int, int] = {}

    def check(self, eqn: jex.JaxprEqn, depth: int) -> None:
        for var in eqn.outvars:
            if _is_too_large(var.aval):
                raise self._error(
                    eqn, f"gives {var.aval}, expected at most 2**{MAX_BYTES.bit_length() - 1} bytes"
                )
        for body in jex.jaxprs_in_params(eqn.params):
            if self._checked.get(id(body), -1) >= depth:
                continue
            if depth >= MAX_DEPTH:
                raise self._error(
                    eqn,
                    f"is inside of {depth} branches, loops and calls, which is too deep for XLA; "
                    "write what repeats as a loop (jax.lax.fori_loop, jax.lax.scan)",
                )
            self._checked[id(body)] = depth
            for inner in body.eqns:
                self.check(inner, depth + 1)

    def _error(self, eqn: jex.JaxprEqn, what: str) -> InvalidArgumentError:
        op = self._op
        line = origin.line_of(eqn) or origin.line_of(op.eqn) or op.origin
        return InvalidArgumentError(
            f"operation {op.name!r}: {eqn.primitive.name!r} (at {line}) {what}", op=op.name
        )


def _is_too_large(aval: Any) -> bool:
    shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if not shape or dtype is None:
        return False
    n_bytes = dtype.itemsize if isinstance(dtype, np.dtype) else 1
    n_elements: int = math.prod(n for n in shape if is_known(n) and n)
    return n_elements * n_bytes > MAX_BYTES


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
