"""Resolves the scopes around a new operation to a device request, by TensorFlow's rules.

From the innermost block outwards: a device name fills in missing fields; the result of a device
function replaces everything found so far; None ends the search. Then the request of an operation
to colocate with replaces the result, unless that request is empty. An operation on a variable has
the request of the variable, because it runs where the variable is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jflow.base.cluster import DeviceSpec
from jflow.compiler.graph import request
from jflow.compiler.graph.request import DeviceFunction, Request

if TYPE_CHECKING:  # a graph resolves what it adds
    from jflow.compiler.graph.graph import Operation


def resolve(
    op: Operation, others: Mapping[str, Operation], variable: Operation | None = None
) -> None:
    """Resolves the request of a new operation; calls the user's device functions around it.

    Args:
      op: the operation, not yet in its graph.
      others: the operations of the graph by name.
      variable: the handle op of the variable that the operation uses, if it uses one.

    Raises:
      ValueError: if a device function returns a string that is not a device name, or the
        operation is colocated with an operation of another graph.
      TypeError: if a device function returns another type. Its own exceptions propagate.
    """
    requested = request.requested(op.eqn)
    lives_on = None if variable is None else request.requested_device(variable.eqn)
    if requested.is_resolved and lives_on in (None, requested.spec):
        return
    spec = _device(op, requested)
    roots: set[str] = set()
    for name in reversed(requested.names):
        if name not in others:
            raise ValueError(
                f"operation {op.name!r} (made at {op.origin}) is in a block that colocates with "
                f"{name!r} of another graph"
            )
        target = request.requested(others[name].eqn)
        roots.update(target.names or (name,))
        spec = spec if target.spec.is_empty else target.spec
    own_spec = spec if lives_on is None else lives_on
    _set(op, request.resolved(own_spec, sorted(roots), requested.window))


def _device(op: Operation, requested: Request) -> DeviceSpec:
    spec = DeviceSpec()
    for block in reversed(requested.devices):
        if block is None:
            break
        if isinstance(block, DeviceFunction):
            # The function sees the request of the blocks inside its own as `op.device`.
            _set(op, request.resolved(spec, ()))
            spec = _answer(block, op)
        else:
            spec = block.merge(spec)
    return spec


def _set(op: Operation, resolved: Request) -> None:
    op.eqn = request.replaced(op.eqn, resolved)


def _answer(function: DeviceFunction, op: Operation) -> DeviceSpec:
    where = f"device function {str(function)!r} for operation {op.name!r} (made at {op.origin})"
    try:
        device = function.call(op)
    except Exception as error:
        error.add_note(f"in {where}")
        raise
    if device is None or isinstance(device, DeviceSpec):
        return device or DeviceSpec()
    if not isinstance(device, str):
        raise TypeError(
            f"{where}: expected a device name, a DeviceSpec or None, got {type(device).__name__}"
        )
    try:
        return DeviceSpec.parse(device)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
