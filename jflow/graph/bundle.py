"""`Bundle`: small tensors that one program makes for one other device, and that travel as one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax

from jflow.graph.graph import Tensor


@dataclass(frozen=True, eq=False)
class Bundle:
    """Tensors that travel as one array: their elements one after another.

    A bundle equals itself only, because it is a key for each of its tensors, which may be many.

    Attributes:
      tensors: at least two, of one dtype that is its own physical form, and with known sizes.
    """

    tensors: tuple[Tensor, ...]

    @property
    def name(self) -> str:
        """What traces call it, such as "mul:0 and 2 more"."""
        return f"{self.tensors[0].name} and {len(self.tensors) - 1} more"

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many elements each tensor has."""
        return tuple(math.prod(tensor.shape) for tensor in self.tensors)

    @property
    def aval(self) -> jax.core.ShapedArray:
        """The type of the array, (n,)."""
        return jax.core.ShapedArray((sum(self.sizes),), self.tensors[0].dtype)
