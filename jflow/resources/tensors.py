"""Tensors that resources take: refusals, and sizes in memory."""

from __future__ import annotations

from collections.abc import Iterable

from jflow.errors import InvalidArgumentError
from jflow.values import Array, Shape, TensorSpec, shape_text, type_name


def mismatch(spec: TensorSpec, array: Array, where: str, resource: object) -> InvalidArgumentError:
    """The error for an array that does not fit, found at `where` on its way to a resource."""
    if array.dtype != spec.numpy_dtype:
        what, expected, got = "Type", spec.dtype.name, type_name(array)
    else:
        what, expected, got = "Shape", shape_text(spec.shape), shape_text(array.shape)
    return InvalidArgumentError(
        f"{what} mismatch in {where}. Expected {expected}, got {got} ({resource})"
    )


def checked_spec(shape: Shape, dtype: str) -> TensorSpec:
    """The spec. Raises InvalidArgumentError if there is no such dtype or shape."""
    try:
        return TensorSpec(shape, dtype)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(str(error)) from None


def shapes_text(shapes: Iterable[Shape]) -> str:
    """Shapes for messages."""
    return f"[{', '.join(map(shape_text, shapes))}]"


def n_bytes_of(array: Array) -> int:
    """How much memory an array takes, with its strings."""
    return array.nbytes + sum(map(len, array.flat)) if array.dtype == object else array.nbytes
