"""Calls of Python functions of the client in plans."""

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
"""A function of the client, in the client's process: takes operands and returns results."""


@dataclass(frozen=True)
class LinkedCallback:
    """A linked `Call` that the client executes.

    Attributes:
      instruction: the call.
      number: identifies the function for the client.
      results: dtype and sizes of each result; None for an unknown size.
      is_conditional: whether the first operand determines if the function is called.
    """

    instruction: Call
    number: int
    results: tuple[tuple[np.dtype[Any], tuple[int | None, ...]], ...]
    is_conditional: bool

    def operands(self, inputs: Sequence[Array]) -> Sequence[Array] | None:
        """Returns the operands of the function, or None if it must not be called."""
        if not self.is_conditional:
            return inputs
        return inputs[1:] if inputs[0].item() else None

    def zeros(self) -> list[Array]:
        """Returns the results for the case that the function is not called."""
        return [np.zeros([size or 0 for size in sizes], dtype) for dtype, sizes in self.results]

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """A block that adds the operation to an OpError of the client's function."""
        try:
            yield
        except OpError as error:
            error.op = error.op or self.instruction.op
            raise

    def checked(self, results: Sequence[Array]) -> Sequence[Array]:
        """Returns the results from the client.

        Raises:
          InvalidArgumentError: if their number, dtypes or shapes are not the expected ones.
        """
        fits = len(results) == len(self.results) and all(
            value.dtype == dtype and _fits(value.shape, sizes)
            for value, (dtype, sizes) in zip(results, self.results, strict=True)
        )
        if not fits:
            found = ", ".join(f"{value.dtype}{value.shape}" for value in results)
            expected = ", ".join(f"{dtype}{sizes}" for dtype, sizes in self.results)
            raise InvalidArgumentError(
                f"expected results {expected or 'of no values'} from the function of the client, "
                f"got {found or 'none'}",
                op=self.instruction.op,
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
