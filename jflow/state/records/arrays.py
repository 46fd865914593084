"""Operations on host tensors of any dtype."""

from __future__ import annotations

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError


def stack(*values: Array) -> tuple[Array]:
    """Stacks arrays of one dtype and shape along a new first dimension, T[n, ...].

    Raises:
      InvalidArgumentError: if shapes differ.
    """
    shapes = [value.shape for value in values]
    for shape in shapes:
        if shape != shapes[0]:
            raise InvalidArgumentError(
                f"Shapes of all inputs must match, got {shapes[0]} and {shape}"
            )
    return (np.stack(values),)
