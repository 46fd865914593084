"""Parses numbers in text: decimal, and floats in hexadecimal too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jflow.base.values import Array


class MalformedNumberError(Exception):
    """Raised for a text that is not a number of the dtype.

    Attributes:
      index: index of the text.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def parse_numbers(texts: Sequence[bytes], dtype: np.dtype[Any]) -> Array:
    """Parses texts as numbers, dtype[n]; ignores white space around them.

    A float may be hexadecimal, such as "0xF" or "0x1.8p3". One beyond the range of its dtype is
    infinite; an integer beyond it is an error.

    Raises:
      MalformedNumberError: for the first text that is not such a number.
    """
    joined = b"".join(texts)
    parse = _parser(dtype, joined)
    try:
        # Python would parse "1_0" as ten.
        if b"_" not in joined:
            with np.errstate(over="ignore"):
                return np.array([*map(parse, texts)], dtype)
    except (ValueError, OverflowError):
        pass
    raise MalformedNumberError(
        next(i for i, text in enumerate(texts) if not _is_number(text, dtype))
    )


def _parser(dtype: np.dtype[Any], texts: bytes) -> Callable[[bytes], float]:
    """Returns the parser for a dtype: Python's `float` if no text can be hexadecimal."""
    if dtype.kind in "iu":
        return int
    return _parse_float if b"x" in texts or b"X" in texts else float


def _parse_float(text: bytes) -> float:
    """Parses a decimal or hexadecimal float. Raises ValueError if it is neither."""
    if b"x" not in text.lower():
        return float(text)
    try:
        return float.fromhex(text.decode())
    except OverflowError:
        return -math.inf if text.lstrip().startswith(b"-") else math.inf


def _is_number(text: bytes, dtype: np.dtype[Any]) -> bool:
    try:
        value = _parser(dtype, text)(text)
    except ValueError:
        return False
    bounds = np.iinfo(dtype) if dtype.kind in "iu" else None
    return b"_" not in text and (bounds is None or bounds.min <= value <= bounds.max)
