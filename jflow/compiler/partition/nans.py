"""Checks for NaN under `jax_debug_nans`: which tensors, and the attributes of the check."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp

from jflow.base.packing import pack
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.primitives import WRITES, read_p


def may_be_nan(ops: Sequence[Operation], fed: Collection[Tensor]) -> list[Tensor]:
    """Returns the tensors that XLA operations compute and that can be NaN."""
    return [
        tensor
        for op in ops
        if op.eqn.primitive is not read_p
        for tensor in op.outputs
        if tensor not in fed and jax.dtypes.issubdtype(tensor.dtype, jnp.inexact)
    ]


def nan_attributes(checked: Sequence[Tensor], escaping: Collection[Tensor]) -> bytes:
    """The attributes of a check of some tensors.

    As under `jax.jit`, a NaN counts if it is a result: leaves its program, or goes to a variable.
    """
    return pack(
        {
            "ops": [tensor.op.name for tensor in checked],
            "results": [
                i
                for i, tensor in enumerate(checked)
                if tensor in escaping or tensor.op.eqn.primitive in WRITES
            ],
        }
    )
