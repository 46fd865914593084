"""`TensorSpec`: a shape and a dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jflow.base.values.dims import Dim, as_shape, is_known, plain_shape
from jflow.base.values.dtypes import NUMBERS, AbstractValue, Dtype, host_abstract
from jflow.base.values.host import Array, HostDtype, string
from jflow.base.values.physical import is_key, physical_form

Shape = tuple[int | None, ...] | None
"""Sizes of the dimensions, None where unknown; None instead of a tuple if the rank is unknown."""


@dataclass(frozen=True, repr=False)
class TensorSpec:
    """The shape and dtype of tensors, such as a component of a queue's elements.

    Attributes:
      shape: sizes, None for a size that varies; None instead of a tuple if the rank varies.
      dtype: a NumPy dtype, a JAX random key dtype, or `jflow.string`; also given by name.

    Raises:
      TypeError: if the dtype is unknown.
      ValueError: if a size is negative.
    """

    shape: Shape
    dtype: Dtype

    def __post_init__(self) -> None:
        sizes = plain_shape(self.shape)
        object.__setattr__(self, "shape", None if sizes is None else tuple(sizes))
        object.__setattr__(self, "dtype", _as_dtype(self.dtype))
        if any(size is not None and size < 0 for size in self.shape or ()):
            raise ValueError(f"expected sizes of 0 or more, got {shape_text(self.shape)}")

    def __repr__(self) -> str:
        return f"TensorSpec({self.shape}, {self.dtype.name})"

    @property
    def is_string(self) -> bool:
        """Whether the elements are `bytes` objects."""
        return self.dtype is string

    @property
    def is_static(self) -> bool:
        """Whether the rank and all sizes are fixed."""
        return self.shape is not None and None not in self.shape

    @cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of NumPy arrays that hold such tensors on the host."""
        return np.dtype(object) if self.is_string else np.dtype(self.dtype)

    @cached_property
    def batch(self) -> TensorSpec:
        """The spec of a batch of such tensors: with a new first dimension of any size."""
        return TensorSpec(None if self.shape is None else (None, *self.shape), self.dtype)

    @cached_property
    def physical(self) -> TensorSpec:
        """The spec of the physical form, which queues, variables and messages hold."""
        form = physical_form(self.dtype)
        if form is None:
            return self
        sizes = tuple(1 if size is None else size for size in self.shape or ())
        carried = jax.eval_shape(form.unwrap, jax.ShapeDtypeStruct(sizes, self.dtype))
        added = carried.shape[len(sizes) :]
        return TensorSpec(None if self.shape is None else (*self.shape, *added), carried.dtype)

    def aval(self, *batch: Dim) -> AbstractValue:
        """Returns the abstract value of such a tensor, or of a batch with these leading sizes."""
        shape = as_shape(self.shape)
        return host_abstract(None if shape is None else (*batch, *shape), self.dtype)

    def fits(self, array: Array) -> bool:
        """Whether a host array matches the spec."""
        if array.dtype != self.numpy_dtype:
            return False
        return array.shape == self.shape or is_compatible(self.shape, array.shape)


def is_compatible(declared: Sequence[Dim | None] | None, shape: Sequence[Dim] | None) -> bool:
    """Whether a shape fits a declared one, as far as both are known."""
    wanted_sizes, found_sizes = plain_shape(declared), plain_shape(shape)
    if wanted_sizes is None or found_sizes is None:
        return True
    return len(wanted_sizes) == len(found_sizes) and all(
        not is_known(dim) or not is_known(size) or dim == size
        for dim, size in zip(wanted_sizes, found_sizes, strict=True)
    )


def shape_text(shape: Shape) -> str:
    """Formats a shape for messages, such as "(2, None)" or "any shape"."""
    return "any shape" if shape is None else str(shape)


def _as_dtype(dtype: Any) -> Dtype:
    """Converts a dtype or its name to a dtype, which may have 64 bits, unlike in programs."""
    if isinstance(dtype, HostDtype) or is_key(dtype):
        return dtype
    if isinstance(dtype, str):
        known_dtype = string if dtype == string.name else NUMBERS.get(dtype)
        if known_dtype is None:
            raise TypeError(
                f"{dtype!r} is not a dtype of tensors; expected one of {string.name}, "
                + ", ".join(NUMBERS)
            )
        return known_dtype
    if isinstance(dtype, list | dict):
        raise TypeError(f"{dtype!r:.80} is not a dtype of tensors")
    wanted = np.dtype(dtype)
    return string if wanted.kind in "SUO" else wanted
