"""Declarations of the features of Examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jflow.base.values import Array, as_strings, string
from jflow.errors import InvalidArgumentError

_DTYPES = ("float32", "int64", "int32", "string")


@dataclass(frozen=True)
class FixedLenFeature:
    """A feature with the same number of values in each Example, parsed as dtype[batch, *shape].

    Attributes:
      shape: shape of the values of one Example.
      dtype: float32, int64, int32 or string.
      default_value: value for Examples without the feature: as many numbers as the shape has, in
        any shape, or a scalar; if None, such Examples are an error.
    """

    shape: Sequence[int]
    dtype: Any
    default_value: Any = None


@dataclass(frozen=True)
class FixedLenSequenceFeature:
    """A feature with a list of any length, parsed as dtype[batch, longest, *shape] with padding.

    Attributes:
      shape: shape of an element of the list.
      dtype: float32, int64, int32 or string.
      allow_missing: whether the list of a SequenceExample without the feature is empty, as that of
        an Example always is; else such a SequenceExample is an error.
      default_value: scalar for padding; None for 0 or "". It must be None for a SequenceExample.
    """

    shape: Sequence[int]
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


@dataclass(frozen=True)
class VarLenFeature:
    """A feature with a list of any length, parsed as a `SparseTensor` dtype[batch, longest].

    Attributes:
      dtype: float32, int64, int32 or string.
    """

    dtype: Any


@dataclass(frozen=True)
class SparseFeature:
    """Positions and values in features of their own, parsed as a `SparseTensor` [batch, *size].

    Attributes:
      index_key: key of the feature with the positions, which are int64; a list of keys, one for
        each dimension, if there may be several.
      value_key: key of the feature with the values, as many as there are positions.
      dtype: dtype of the values: float32, int64, int32 or string.
      size: size of the dimension; a list of sizes if there is a list of keys.
      already_sorted: whether the positions in each Example are in order; else they are sorted.
    """

    index_key: str | Sequence[str]
    value_key: str
    dtype: Any
    size: int | Sequence[int]
    already_sorted: bool = False

    @property
    def index_keys(self) -> Sequence[str]:
        """The keys of the features with the positions."""
        return [self.index_key] if isinstance(self.index_key, str) else self.index_key


Feature = FixedLenFeature | FixedLenSequenceFeature | VarLenFeature | SparseFeature

Column = Sequence[Any]
"""[key, kind, dtype, shape] as JSON types; the kind is "fixed", "sequence" or "sparse"."""


def as_columns(features: Mapping[str, Feature]) -> tuple[list[Array], list[Column]]:
    """Converts declarations to the arguments of `parse_example`: default values and columns.

    There is an array of default values for each column that is not sparse, empty for none. A
    `SparseFeature` is a sparse column for each of its keys, that of the values last.

    Raises:
      InvalidArgumentError: if a dtype is not supported, or a default value does not fit.
      ValueError: if a `SparseFeature` lacks a key.
    """
    defaults: list[Array] = []
    columns: list[Column] = []
    for key, feature in features.items():
        dtype = _dtype_name(key, feature.dtype)
        if isinstance(feature, SparseFeature):
            columns += [[index, "sparse", "int64", []] for index in _checked(key, feature)]
            columns.append([feature.value_key, "sparse", dtype, []])
            continue
        if isinstance(feature, VarLenFeature):
            columns.append([key, "sparse", dtype, []])
            continue
        is_fixed = isinstance(feature, FixedLenFeature)
        shape = [int(n) for n in feature.shape]
        columns.append([key, "fixed" if is_fixed else "sequence", dtype, shape])
        defaults.append(_default(key, feature.default_value, dtype, shape if is_fixed else []))
    return defaults, columns


def _checked(key: str, feature: SparseFeature) -> Sequence[str]:
    """Returns the keys of the positions of a feature. Raises ValueError if it lacks a key."""
    if not (feature.index_key and feature.value_key):
        missing = "value_key" if feature.index_key else "index_key"
        raise ValueError(f"feature {key!r}: missing {missing} of {feature}")
    return feature.index_keys


def _dtype_name(key: str, dtype: Any) -> str:
    if dtype in (str, bytes, string):
        return string.name
    try:
        name = dtype if dtype in _DTYPES else np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in _DTYPES:
        raise InvalidArgumentError(
            f"feature {key!r}: expected one of {', '.join(_DTYPES)} as dtype, got {name}"
        )
    return str(name)


def _default(key: str, value: Any, dtype: str, shape: list[int]) -> Array:
    if value is None:
        return np.empty(0, object if dtype == string.name else dtype)
    try:
        array = as_strings(value) if dtype == string.name else np.asarray(value, dtype)
        return array.reshape(shape) if array.ndim else np.broadcast_to(array, shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"feature {key!r}: the default value {value!r:.80} does not fit {dtype} of shape "
            f"{tuple(shape)}: {error}"
        ) from error
