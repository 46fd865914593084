"""Calls of the client's Python functions in plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from jflow.base.values import Array, TensorSpec
from jflow.errors import InvalidArgumentError, OpError
from jflow.plan import Call, CallbackAttributes

ClientFunction = Callable[[Sequence[Array]], Sequence[Array]]
"""A function of the client, in the client's process: takes operands and returns results."""


@dataclass(frozen=True)
class LinkedCallback:
    """A linked `Call` of a function of the client.

    Attributes:
      instruction: the call.
      number: identifies the function for the client.
      results: what the function returns.
      is_conditional: whether the first operand determines if the function is called.
    """

    instruction: Call
    number: int
    results: tuple[TensorSpec, ...]
    is_conditional: bool

    def operands(self, inputs: Sequence[Array]) -> Sequence[Array] | None:
        """Returns the operands of the function, or None if it must not be called."""
        if not self.is_conditional:
            return inputs
        return inputs[1:] if inputs[0].item() else None

    def zeros(self) -> list[Array]:
        """Returns the results for the case that the function is not called."""
        return [np.zeros(spec.shape or (), spec.numpy_dtype) for spec in self.results]

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """Context manager that adds the operation's name to an OpError of the function."""
        try:
            yield
        except OpError as error:
            error.with_context(op=self.instruction.op)
            raise

    def checked(self, results: Sequence[Array]) -> Sequence[Array]:
        """Checks the results from the client and returns them.

        Raises:
          InvalidArgumentError: if their number, dtypes or shapes are not the expected ones.
        """
        fits = len(results) == len(self.results) and all(
            spec.fits(value) for value, spec in zip(results, self.results, strict=True)
        )
        if not fits:
            types = ", ".join(f"{value.dtype}{value.shape}" for value in results) or "nothing"
            expected = ", ".join(f"{spec.dtype.name}{spec.shape}" for spec in self.results)
            raise InvalidArgumentError(
                f"expected results {expected or 'of no values'} from the function of the client, "
                f"got {types}",
                op=self.instruction.op,
            )
        return results


def link_callback(call: Call) -> LinkedCallback:
    """Decodes the attributes of a callback, and links it.

    Raises:
      InvalidArgumentError: if they are not those of a callback, or do not fit the call's slots.
    """
    attributes = CallbackAttributes.from_bytes(call.attributes)
    is_number = all(spec.shape is not None and not spec.is_string for spec in attributes.results)
    has_zeros = not attributes.is_conditional or all(spec.is_static for spec in attributes.results)
    fits = len(attributes.results) == len(call.outputs) and attributes.is_conditional <= len(
        call.inputs
    )
    if not (is_number and has_zeros and fits):
        raise InvalidArgumentError(f"a callback cannot have these attributes and slots: {call}")
    return LinkedCallback(call, attributes.number, attributes.results, attributes.is_conditional)
