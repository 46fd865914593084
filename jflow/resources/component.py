"""Dtype and shape of the arrays that a resource takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.resources.attributes import Attributes
from jflow.values import NUMBERS, Array, string

Shape = tuple[int | None, ...] | None
"""The sizes of an array, None where any will do; None if the rank may be any as well."""


@dataclass(frozen=True)
class Component:
    """The dtype and shape of arrays, such as one component of a queue's elements.

    Attributes:
      dtype: name of their dtype, such as "float32"; "string" for object arrays of bytes.
      shape: what their shapes must match.

    Raises:
      InvalidArgumentError: if there is no such dtype or shape.
    """

    dtype: str
    shape: Shape

    def __post_init__(self) -> None:
        if self.dtype != string.name and self.dtype not in NUMBERS:
            raise InvalidArgumentError(
                f"{self.dtype!r} is not a dtype of tensors; there are {string.name}, "
                + ", ".join(NUMBERS)
            )
        if any(size is not None and size < 0 for size in self.shape or ()):
            raise InvalidArgumentError(f"expected sizes of 0 or more, got {shape_text(self.shape)}")

    @property
    def is_string(self) -> bool:
        """Whether arrays of this component hold bytes objects."""
        return self.dtype == string.name

    @property
    def is_static(self) -> bool:
        """Whether all arrays of this component have one shape."""
        return self.shape is not None and None not in self.shape

    @cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of its arrays."""
        return np.dtype(object) if self.is_string else NUMBERS[self.dtype]

    @cached_property
    def batch(self) -> Component:
        """Such arrays stacked along a new first dimension."""
        return Component(self.dtype, None if self.shape is None else (None, *self.shape))

    def fits(self, array: Array) -> bool:
        """Whether an array has this dtype and a shape that matches."""
        if array.dtype != self.numpy_dtype:
            return False
        return array.shape == self.shape or is_compatible(array.shape, self.shape)

    def mismatch(self, array: Array, where: str, resource: object) -> InvalidArgumentError:
        """The error for an array that does not fit, found at `where` on its way to a resource."""
        if array.dtype != self.numpy_dtype:
            what, expected, got = "Type", self.dtype, type_text(array)
        else:
            what, expected, got = "Shape", shape_text(self.shape), shape_text(array.shape)
        return InvalidArgumentError(
            f"{what} mismatch in {where}. Expected {expected}, got {got} ({resource})"
        )

    def to_attributes(self) -> dict[str, Any]:
        """This as a record of plain values."""
        return {"dtype": self.dtype, "shape": None if self.shape is None else [*self.shape]}

    @classmethod
    def from_attributes(cls, record: object) -> Component:
        """What `to_attributes` described. Raises InvalidArgumentError if it did not."""
        found = Attributes(record, "component of a queue", ("dtype", "shape"))
        return cls(found.text("dtype"), found.shape("shape"))


def is_compatible(shape: tuple[int, ...], wanted: Shape) -> bool:
    """Whether an array of this shape is wanted."""
    if wanted is None:
        return True
    return len(shape) == len(wanted) and all(
        size is None or size == n for n, size in zip(shape, wanted, strict=True)
    )


def shape_text(shape: Shape) -> str:
    """A shape for messages, such as "[2,?]"."""
    if shape is None:
        return "any shape"
    return f"[{','.join('?' if size is None else str(size) for size in shape)}]"


def shapes_text(shapes: Iterable[Shape]) -> str:
    """Shapes for messages."""
    return f"[{', '.join(map(shape_text, shapes))}]"


def type_text(array: Array) -> str:
    """The name of an array's dtype."""
    return string.name if array.dtype == object else array.dtype.name


def n_bytes_of(array: Array) -> int:
    """How much memory an array takes, with its strings."""
    return array.nbytes + sum(map(len, array.flat)) if array.dtype == object else array.nbytes
