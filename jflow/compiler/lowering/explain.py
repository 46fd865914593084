"""Attributes JAX's errors about a segment to the operation that causes them.

JAX reports errors about a whole program, in terms of MLIR. Each operation of the segment is lowered
alone, then each equation inside of the failing one, down to a line of the user's program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import jax.extend.core as jex

from jflow.base.cluster import Axes
from jflow.compiler.graph import Operation, VariableRef, origin
from jflow.compiler.graph.primitives import read_p, state_of
from jflow.compiler.lowering.export import export
from jflow.compiler.lowering.segment import lower
from jflow.errors import InvalidArgumentError, OpError, UnimplementedError
from jflow.plan.xla import jaxprs

_TARGET = re.compile(r'custom_call @(?:"([^"]*)"|([\w.$-]+))')
_OPENED = frozenset(
    {"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "scan", "while", "cond"}
    | {"checkpoint", "remat2"}
)
"""Primitives that run their bodies unchanged, so that an inner equation can be lowered alone."""


class _Target(NamedTuple):
    """What a program is lowered for: a platform, and the axes of a mesh."""

    platform: str
    axes: Axes


@contextmanager
def explained(ops: Sequence[Operation], platform: str, axes: Axes = ()) -> Iterator[None]:
    """Context manager that turns JAX's errors about a segment into errors about one operation.

    Args:
      ops: the operations of the segment.
      platform: the platform that they are lowered for, from `export_platform`.
      axes: those of the mesh that they are lowered for; empty for one device.

    Raises:
      UnimplementedError, InvalidArgumentError: in place of JAX's errors.
    """
    try:
        yield
    except Exception as error:  # JAX raises many kinds
        if isinstance(error, OpError) and error.op is not None:
            raise
        raise _explanation(ops, _Target(platform, axes), error) from error


def _explanation(ops: Sequence[Operation], on: _Target, error: Exception) -> OpError:
    for op in ops:
        failure = _failure_of(op, on)
        if failure is not None:
            name, line, cause = _innermost(op, failure, on)
            what = f"operation {op.name!r}: {name!r} (at {line}) {_reason(cause, on)}"
            return _class_of(cause)(what, op=op.name)
    names = ", ".join(repr(op.name) for op in ops[:5])
    return _class_of(error)(f"the program of {names} {_reason(error, on)}")


def _class_of(error: Exception) -> type[OpError]:
    is_missing = isinstance(error, NotImplementedError) or bool(_targets(error))
    return UnimplementedError if is_missing else InvalidArgumentError


def _targets(error: Exception) -> list[str]:
    if "no compatibility guarantees" not in str(error):
        return []
    return sorted({quoted or plain for quoted, plain in _TARGET.findall(str(error))})


def _reason(error: Exception, on: _Target) -> str:
    targets = _targets(error)
    if targets:
        return (
            f"calls the native function {', '.join(targets)}, for which JAX gives no compatibility "
            "guarantee, so it cannot be sent to another task; use another algorithm, or compute it "
            "in this process and feed the result"
        )
    # The first paragraph states the error; the rest is about JAX's own functions.
    reason = str(error).split("\n\n")[0].split("\n--------------------")[0].strip()
    return f"cannot be lowered for the platform {on.platform!r}: {reason or type(error).__name__}"


def _failure_of(op: Operation, on: _Target) -> Exception | None:
    """Returns the exception that JAX raises for an operation alone, or None."""
    if op.eqn.primitive is read_p:
        return None
    refs = tuple(ref for ref in state_of(op.eqn) if isinstance(ref, VariableRef))
    try:
        alone = lower([op], refs, op.inputs, refs, () if refs else op.outputs, axes=on.axes)
        return _failure(alone.jaxpr, on)
    except Exception as error:  # as above
        return error


def _failure(jaxpr: jex.ClosedJaxpr, on: _Target) -> Exception | None:
    try:
        export(jaxpr, on.platform, on.axes)
    except Exception as error:  # as above
        return error
    return None


def _innermost(op: Operation, error: Exception, on: _Target) -> tuple[str, str, Exception]:
    """Returns the innermost equation that fails the same way: name, line and exception."""
    eqn, line = op.eqn, origin.line_of(op.eqn) or op.origin
    while True:
        deeper = _deeper(eqn, error, on)
        if deeper is None:
            return eqn.primitive.name, line, error
        eqn, error = deeper
        line = origin.line_of(eqn) or line


def _deeper(
    eqn: jex.JaxprEqn, error: Exception, on: _Target
) -> tuple[jex.JaxprEqn, Exception] | None:
    if eqn.primitive.name not in _OPENED:
        return None
    for body in jex.jaxprs_in_params(eqn.params):
        for inner in body.eqns:
            inputs = dict.fromkeys(x for x in inner.invars if not isinstance(x, jex.Literal))
            # An equation that needs values from outside of its body cannot be lowered alone.
            with suppress(Exception):
                alone = jaxprs.close([*inputs], inner.outvars, [inner])
                failure = _failure(alone, on)
                if type(failure) is type(error):
                    return inner, failure
    return None
