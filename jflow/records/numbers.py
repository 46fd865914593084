"""Numbers in decimal notation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jflow.values import Array


class MalformedNumberError(Exception):
    """A text that is not a number of the dtype.

    Attributes:
      index: index of the text.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def parse_numbers(texts: Sequence[bytes], dtype: np.dtype[Any]) -> Array:
    """Parses numbers in decimal notation, dtype[n]; white space around them is ignored.

    A float beyond the range of its dtype becomes infinite; an integer beyond it is an error.

    Raises:
      MalformedNumberError: for the first text that is not such a number.
    """
    parse = _parser(dtype)
    try:
        # Python would parse "1_0" as ten.
        if b"_" not in b"".join(texts):
            with np.errstate(over="ignore"):
                return np.array([*map(parse, texts)], dtype)
    except (ValueError, OverflowError):
        pass
    raise MalformedNumberError(
        next(i for i, text in enumerate(texts) if not _is_number(text, dtype))
    )


def _parser(dtype: np.dtype[Any]) -> Callable[[bytes], float]:
    return int if dtype.kind in "iu" else float


def _is_number(text: bytes, dtype: np.dtype[Any]) -> bool:
    try:
        value = _parser(dtype)(text)
    except ValueError:
        return False
    bounds = np.iinfo(dtype) if dtype.kind in "iu" else None
    return b"_" not in text and (bounds is None or bounds.min <= value <= bounds.max)
