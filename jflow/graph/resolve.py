"""From the blocks around a new operation to the device it asks for, by TensorFlow's rules.

From the innermost block outwards: a device name fills in what is still missing; the result of a
device function replaces everything found so far; None ends the way. Then the device of an operation
to be colocated with replaces what was found, unless that one asks for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import jax.extend.core as jex

from jflow.cluster import DeviceSpec
from jflow.graph import request
from jflow.graph.request import DeviceFunction, Request


class Requesting(Protocol):
    """An operation, as far as it matters here."""

    eqn: jex.JaxprEqn
    name: str

    @property
    def origin(self) -> str:
        """The user's line that made it."""


def resolve(op: Requesting, others: Mapping[str, Requesting]) -> None:
    """Makes the equation of a new operation ask for one device, calling the device functions.

    Args:
      op: the operation, not yet in its graph.
      others: the operations of the graph by name.

    Raises:
      ValueError: if a device function gives a string that is not a device name, or the operation
        is to be colocated with one of another graph.
      TypeError: if a device function gives something else; and whatever it raises itself.
    """
    requested = request.requested(op.eqn)
    if requested.is_resolved:
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
    _set(op, request.resolved(spec, sorted(roots)))


def _device(op: Requesting, requested: Request) -> DeviceSpec:
    spec = DeviceSpec()
    for block in reversed(requested.devices):
        if block is None:
            break
        if isinstance(block, DeviceFunction):
            # The function sees, as `op.device`, what the blocks inside its own ask for.
            _set(op, request.resolved(spec, ()))
            spec = _answer(block, op)
        else:
            spec = block.merge(spec)
    return spec


def _set(op: Requesting, resolved: Request) -> None:
    op.eqn = request.replaced(op.eqn, resolved)


def _answer(function: DeviceFunction, op: Requesting) -> DeviceSpec:
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
