"""Numbers that are written as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jflow.graph.host import Array


class NotANumberError(Exception):
    """A text is no number of the dtype.

    Attributes:
      index: which one it is.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def parse_numbers(texts: Sequence[bytes], dtype: np.dtype[Any]) -> Array:
    """dtype[n], what the texts say in decimal notation; spaces around it do not matter.

    A float beyond the range of its dtype is infinite; an integer may not be beyond it.

    Raises:
      NotANumberError: at the first text that is no such number.
    """
    values: list[float] = []
    is_integer = dtype.kind in "iu"
    parse = int if is_integer else float
    bounds = np.iinfo(dtype) if is_integer else None
    for i, text in enumerate(texts):
        try:
            value = parse(text)
        except ValueError:
            raise NotANumberError(i) from None
        # Python would have it that 1_0 is ten.
        if b"_" in text or (bounds is not None and not bounds.min <= value <= bounds.max):
            raise NotANumberError(i)
        values.append(value)
    with np.errstate(over="ignore"):
        return np.array(values, dtype)
