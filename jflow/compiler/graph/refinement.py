"""`Tensor.set_shape`: refines a shape by what the user knows and the graph does not."""

from __future__ import annotations

from typing import Any

import jax.extend.core as jex

from jflow.base.values import as_shape, declared, host_abstract, is_compatible, is_known, is_static
from jflow.compiler.graph.primitives import recorded_p


def refined(tensor: Any, shape: Any) -> tuple[Any, ...] | None:
    """Returns the shape of a tensor refined by another shape, None if that adds nothing.

    Args:
      tensor: the tensor.
      shape: the shape, with None for unknown sizes, or None.

    Raises:
      TypeError: if it is not a shape.
      ValueError: if the tensor cannot have that shape.
    """
    dims = as_shape(shape)
    if not is_compatible(tensor.aval.shape, dims):
        raise ValueError(f"{tensor!r} (made at {tensor.op.origin}) cannot have the shape {shape}")
    if dims is None or declared(dims) == declared(tensor.aval.shape):
        return None
    if tensor.aval.shape is not None:
        pairs = zip(tensor.aval.shape, dims, strict=True)
        dims = tuple(new if is_known(new) else old for old, new in pairs)
        return None if dims == tuple(tensor.aval.shape) else dims
    if tensor.op.eqn.primitive is recorded_p and not is_static(dims):
        raise ValueError(
            f"{tensor!r} (made at {tensor.op.origin}) is computed from a tensor of unknown rank, "
            "so all of its sizes must be known here; use jflow.ensure_shape, or declare the shape "
            "of the tensor that it is computed from"
        )
    return dims


def retype(tensor: Any, dims: tuple[Any, ...], users: list[Any]) -> jex.Var:
    """Gives a tensor the refined shape, and returns its new variable.

    Args:
      tensor: the tensor.
      dims: the shape.
      users: the operations that have it as an input.

    Raises:
      ValueError: if operations were built on its unknown sizes.
    """
    if users and tensor.aval.shape is not None:
        raise ValueError(
            f"operations such as {users[0].name!r} (made at {users[0].origin}) were built on the "
            f"unknown sizes of {tensor!r}; call set_shape before, or use jflow.ensure_shape"
        )
    old, new = tensor.var, jex.Var(host_abstract(dims, tensor.dtype))
    tensor.op.eqn = _with(tensor.op.eqn, old, new)
    for user in users:
        user.eqn = _with(user.eqn, old, new)
    tensor.var = new
    return new


def _with(eqn: jex.JaxprEqn, old: jex.Var, new: jex.Var) -> jex.JaxprEqn:
    replaced: jex.JaxprEqn = eqn.replace(
        invars=[new if x is old else x for x in eqn.invars],
        outvars=[new if x is old else x for x in eqn.outvars],
    )
    return replaced
