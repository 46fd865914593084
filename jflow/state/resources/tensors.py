"""Type checks of the tensors that resources take."""

from __future__ import annotations

from jflow.base.values import Array, Shape, TensorSpec, shape_text, type_name
from jflow.errors import InvalidArgumentError


def mismatch(spec: TensorSpec, array: Array, where: str, resource: object) -> InvalidArgumentError:
    """Returns the error for an array at `where` whose dtype or shape a resource does not accept."""
    if array.dtype != spec.numpy_dtype:
        what, expected, got = "Type", spec.dtype.name, type_name(array)
    else:
        what, expected, got = "Shape", shape_text(spec.shape), shape_text(array.shape)
    return InvalidArgumentError(
        f"{what} mismatch in {where}. Expected {expected}, got {got} ({resource})"
    )


def check_fits(spec: TensorSpec, array: Array, where: str, resource: object) -> None:
    """Raises `mismatch` unless a resource accepts an array."""
    if not spec.fits(array):
        raise mismatch(spec, array, where, resource)


def checked_spec(shape: Shape, dtype: str) -> TensorSpec:
    """Returns a `TensorSpec`. Raises InvalidArgumentError if the dtype or shape is not valid."""
    try:
        return TensorSpec(shape, dtype)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(str(error)) from None
