"""Calls of Python functions of the client, as plans have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from jflow.errors import InvalidArgumentError, OpError
from jflow.plan import Call
from jflow.values import NUMBERS, Array

_MAX = 2**32 - 1

ClientFunction = Callable[[Sequence[Array]], Sequence[Array]]
"""A function of the client in its own process: takes operands, gives results."""


@dataclass(frozen=True)
class LinkedCallback:
    """A `Call` that the client computes.

    Attributes:
      instruction: what was linked.
      number: by which the client knows the function.
      results: dtype and sizes of each result, None for a size that is not known.
      is_conditional: whether the first operand says if the function is called.
    """

    instruction: Call
    number: int
    results: tuple[tuple[np.dtype[Any], tuple[int | None, ...]], ...]
    is_conditional: bool

    def operands(self, inputs: Sequence[Array]) -> Sequence[Array] | None:
        """What to call the function with, or None if it is not to be called."""
        if not self.is_conditional:
            return inputs
        return inputs[1:] if inputs[0].item() else None

    def zeros(self) -> list[Array]:
        """The results where the function is not called."""
        return [np.zeros([size or 0 for size in sizes], dtype) for dtype, sizes in self.results]

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """Names the operation in an OpError that the client's function causes."""
        try:
            yield
        except OpError as error:
            error.op = error.op or self.instruction.op
            raise

    def checked(self, results: Sequence[Array]) -> Sequence[Array]:
        """What the client computed, if it fits.

        Raises:
          InvalidArgumentError: if it does not.
        """
        fits = len(results) == len(self.results) and all(
            value.dtype == dtype and _fits(value.shape, sizes)
            for value, (dtype, sizes) in zip(results, self.results, strict=True)
        )
        if not fits:
            found = [f"{value.dtype}{[*value.shape]}" for value in results]
            expected = [f"{dtype}{[*sizes]}" for dtype, sizes in self.results]
            raise InvalidArgumentError(
                f"expected {expected} from the client, got {found}", op=self.instruction.op
            )
        return results


def link_callback(call: Call, attributes: dict[str, Any]) -> LinkedCallback:
    """Reads the attributes of a callback.

    Raises:
      InvalidArgumentError: if they are not those of a callback, or its first input is missing.
    """
    try:
        number, results = attributes["number"], attributes["results"]
        read = tuple((NUMBERS[dtype], tuple(map(_size, sizes))) for dtype, sizes in results)
        is_conditional = attributes["is_conditional"]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"attributes of a callback: {error!r}") from None
    fits = isinstance(is_conditional, bool) and isinstance(number, int) and 0 <= number <= _MAX
    if not fits or len(read) != len(call.outputs) or is_conditional > len(call.inputs):
        raise InvalidArgumentError(f"a callback cannot have these attributes and slots: {call}")
    return LinkedCallback(call, number, read, is_conditional)


def _size(size: Any) -> int | None:
    if size is not None and (not isinstance(size, int) or size < 0):
        raise ValueError(f"{size!r} is not a size")
    return size


def _fits(shape: Sequence[int], sizes: Sequence[int | None]) -> bool:
    return len(shape) == len(sizes) and all(
        size in (None, found) for size, found in zip(sizes, shape, strict=True)
    )
