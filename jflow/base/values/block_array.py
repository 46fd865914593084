"""`BlockArray`: an array whose memory is in several buffers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from jflow.base.values.host import Array

ALIGNMENT = 64
"""At multiples of so many bytes, XLA uses arrays of the host as they are."""


class BlockArray:
    """Numbers in several buffers, such as those of the devices that have some rows each.

    They are sent as one array, without a copy that has all of them.

    Args:
      blocks: C-contiguous arrays of equal dtype and row shape; one behind the other, they are the
        array. The size of each, but the last, is a multiple of `ALIGNMENT`, as a message needs it.

    Raises:
      ValueError: if it is not.
    """

    __slots__ = ("blocks", "dtype", "nbytes", "shape")

    def __init__(self, blocks: Sequence[Array]) -> None:
        if any(block.nbytes % ALIGNMENT for block in blocks[:-1]):
            raise ValueError(f"the size of a block is no multiple of {ALIGNMENT} bytes")
        self.blocks = blocks
        self.dtype: np.dtype[Any] = blocks[0].dtype
        self.shape = (sum(len(block) for block in blocks), *blocks[0].shape[1:])
        self.nbytes = sum(block.nbytes for block in blocks)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array in several buffers cannot be viewed as one")
        return np.concatenate(self.blocks, dtype=dtype)

    def tobytes(self) -> bytes:
        """Returns the bytes of all elements in row-major order."""
        return b"".join(block.tobytes() for block in self.blocks)


SentArray: TypeAlias = Array | BlockArray
"""An array to be sent."""
