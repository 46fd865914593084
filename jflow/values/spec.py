"""What is known of tensors without a value: shape and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jflow.values.dims import Dim, as_shape, is_known
from jflow.values.dtypes import NUMBERS, AbstractValue, Dtype, host_abstract
from jflow.values.host import Array, HostDtype, string
from jflow.values.physical import is_key, physical_form

Shape = tuple[int | None, ...] | None
"""The sizes of a tensor, None for one that is not known; None if the rank is not known either."""


@dataclass(frozen=True, repr=False)
class TensorSpec:
    """The shape and dtype that tensors have, such as a component of a queue's elements.

    Attributes:
      shape: their sizes, None for one that may differ between them; None if the rank may too.
      dtype: what their elements are: a dtype of NumPy, of JAX's random keys, or `jflow.string`.
        It may be given by its name.

    Raises:
      TypeError: if there is no such dtype.
      ValueError: if a size is negative.
    """

    shape: Shape
    dtype: Dtype

    def __post_init__(self) -> None:
        if self.shape is not None:
            object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", _as_dtype(self.dtype))
        if any(size is not None and size < 0 for size in self.shape or ()):
            raise ValueError(f"expected sizes of 0 or more, got {shape_text(self.shape)}")

    def __repr__(self) -> str:
        return f"TensorSpec({self.shape}, {self.dtype.name})"

    @property
    def is_string(self) -> bool:
        """Whether the elements are bytes objects."""
        return self.dtype is string

    @property
    def is_static(self) -> bool:
        """Whether all such tensors have one shape."""
        return self.shape is not None and None not in self.shape

    @cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of the NumPy arrays that hold such tensors on the host."""
        return np.dtype(object) if self.is_string else np.dtype(self.dtype)

    @cached_property
    def batch(self) -> TensorSpec:
        """Such tensors stacked along a new first dimension of any size."""
        return TensorSpec(None if self.shape is None else (None, *self.shape), self.dtype)

    @cached_property
    def physical(self) -> TensorSpec:
        """The physical form of such tensors: what queues, variables and messages hold."""
        form = physical_form(self.dtype)
        if form is None:
            return self
        sizes = tuple(1 if size is None else size for size in self.shape or ())
        carried = jax.eval_shape(form.unwrap, jax.ShapeDtypeStruct(sizes, self.dtype))
        added = carried.shape[len(sizes) :]
        return TensorSpec(None if self.shape is None else (*self.shape, *added), carried.dtype)

    def aval(self, *batch: Dim) -> AbstractValue:
        """The abstract value of such a tensor, or of a batch of some size of them."""
        shape = as_shape(self.shape)
        return host_abstract(None if shape is None else (*batch, *shape), self.dtype)

    def fits(self, array: Array) -> bool:
        """Whether an array on the host is such a tensor."""
        if array.dtype != self.numpy_dtype:
            return False
        return array.shape == self.shape or is_compatible(self.shape, array.shape)


def is_compatible(declared: Sequence[Dim | None] | None, shape: Sequence[Dim] | None) -> bool:
    """Whether a tensor of a shape fits a declared one, or may turn out to when it is known."""
    if declared is None or shape is None:
        return True
    return len(declared) == len(shape) and all(
        not is_known(dim) or not is_known(size) or dim == size
        for dim, size in zip(declared, shape, strict=True)
    )


def shape_text(shape: Shape) -> str:
    """A shape for messages, such as "(2, None)"."""
    return "any shape" if shape is None else str(shape)


def _as_dtype(dtype: Any) -> Dtype:
    """The dtype, by its name or itself. Unlike in programs it may be of 64 bits."""
    if isinstance(dtype, HostDtype) or is_key(dtype):
        return dtype
    if isinstance(dtype, str):
        found = string if dtype == string.name else NUMBERS.get(dtype)
        if found is None:
            raise TypeError(
                f"{dtype!r} is not a dtype of tensors; there are {string.name}, "
                + ", ".join(NUMBERS)
            )
        return found
    wanted = np.dtype(dtype)
    return string if wanted.kind in "SUO" else wanted
