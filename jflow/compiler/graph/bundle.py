"""`Bundle`: small tensors from one program to one other device, sent as one array."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import numpy as np

from jflow.base.values import is_static, is_switched_off, physical_form
from jflow.compiler.graph.graph import Tensor
from jflow.compiler.graph.primitives import is_on_host

SMALL_BYTES = 8 << 10
"""Larger values are sent as they are: to copy them would take longer than it saves."""


@dataclass(frozen=True, eq=False)
class Bundle:
    """Tensors that are flattened and concatenated into one array, to be sent as one message.

    A bundle equals itself only, because it is a key for each of its tensors, which may be many.

    Attributes:
      tensors: at least two, of one dtype that is its own physical form, and with known sizes.
    """

    tensors: tuple[Tensor, ...]

    @property
    def name(self) -> str:
        """The name in traces, such as "mul:0 and 2 more"."""
        return f"{self.tensors[0].name} and {len(self.tensors) - 1} more"

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of elements of each tensor."""
        return tuple(math.prod(tensor.shape) for tensor in self.tensors)

    @property
    def aval(self) -> jax.core.ShapedArray:
        """The type of the array, (n,)."""
        return jax.core.ShapedArray((sum(self.sizes),), self.tensors[0].dtype)


def is_small(tensor: Tensor) -> bool:
    """Whether a tensor is a small array of known shape that can be part of a bundle."""
    dtype, shape = tensor.dtype, tensor.shape
    if is_on_host(tensor.op.eqn) or not isinstance(dtype, np.dtype) or not is_static(shape):
        return False
    if physical_form(dtype) is not None or is_switched_off(dtype) or dtype.isbuiltin != 1:
        return False  # XLA may convert dtypes that are not NumPy's, and change the bits of a NaN
    n_bytes: int = math.prod(shape) * dtype.itemsize
    return 0 < n_bytes <= SMALL_BYTES
