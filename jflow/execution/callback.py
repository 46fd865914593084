"""Calls of Python functions of the client, as plans have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.graph.callbacks import Callback
from jflow.plan import Call
from jflow.values import NUMBERS, Array

_MAX = 2**32 - 1


@dataclass(frozen=True)
class BoundCallback:
    """A `Call` step that the client computes.

    Attributes:
      step: the step.
      number: what the client knows the function by.
      results: dtype and sizes of each result, None for a size that is not known.
      is_conditional: whether the first operand says if the function is called.
    """

    step: Call
    number: int
    results: tuple[tuple[np.dtype[Any], tuple[int | None, ...]], ...]
    is_conditional: bool

    def taken(self, inputs: Sequence[Array]) -> Sequence[Array] | None:
        """The operands to call the function with, or None if it is not to be called."""
        if not self.is_conditional:
            return inputs
        return inputs[1:] if inputs[0].item() else None

    def zeros(self) -> list[Array]:
        """The results where the function is not called."""
        return [np.zeros([size or 0 for size in sizes], dtype) for dtype, sizes in self.results]

    def checked(self, results: Sequence[Array]) -> Sequence[Array]:
        """What the client sent, if it fits.

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
                f"expected {expected} from the client, got {found}", op=self.step.op
            )
        return results


def bound_callback(step: Call, attributes: dict[str, Any]) -> BoundCallback:
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
    if not fits or len(read) != len(step.outputs) or is_conditional > len(step.inputs):
        raise InvalidArgumentError(f"no callback has these attributes and slots: {step}")
    return BoundCallback(step, number, read, is_conditional)


def called_here(bound: BoundCallback, callback: Callback) -> Callable[..., Sequence[Array]]:
    """The function of the host that calls a callback in its own thread."""

    def call(*inputs: Array) -> Sequence[Array]:
        operands = bound.taken(inputs)
        if operands is None:
            return bound.zeros()
        if callback.effects:
            # Loops before it may still run, with callbacks of their own that come first.
            jax.effects_barrier()
        return callback(operands)

    return call


def _size(size: Any) -> int | None:
    if size is not None and (not isinstance(size, int) or size < 0):
        raise ValueError(f"{size!r} is no size")
    return size


def _fits(shape: Sequence[int], sizes: Sequence[int | None]) -> bool:
    return len(shape) == len(sizes) and all(
        size in (None, found) for size, found in zip(sizes, shape, strict=True)
    )
