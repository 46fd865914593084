"""What a user says about the features of Examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.values import Array, as_strings, string

_DTYPES = ("float32", "int64", "int32", "string")


@dataclass(frozen=True)
class FixedLenFeature:
    """A feature with the same number of values in each Example; gives dtype[batch, *shape].

    Attributes:
      shape: the shape of one Example's values.
      dtype: float32, int64, int32 or string.
      default_value: what Examples without the feature have, or one value for all elements; with
        None they are refused.
    """

    shape: Sequence[int]
    dtype: Any
    default_value: Any = None


@dataclass(frozen=True)
class FixedLenSequenceFeature:
    """A feature with a list of any length; gives dtype[batch, longest, *shape], padded.

    Attributes:
      shape: the shape of one element of the list.
      dtype: float32, int64, int32 or string.
      default_value: what pads, 0 or "" where None; an Example without the feature has an empty
        list.
    """

    shape: Sequence[int]
    dtype: Any
    default_value: Any = None


@dataclass(frozen=True)
class VarLenFeature:
    """A feature of any length; gives indices i64[n, 2], values dtype[n] and shape i64[2].

    Attributes:
      dtype: float32, int64, int32 or string.
    """

    dtype: Any


Feature = FixedLenFeature | FixedLenSequenceFeature | VarLenFeature

Column = Sequence[Any]
"""[key, kind, dtype, shape], fit for JSON; the kind is "fixed", "sequence" or "sparse"."""


def as_columns(features: Mapping[str, Feature]) -> tuple[list[Array], list[Column]]:
    """What `parse_example` takes: the default values, and the columns.

    There is one array of default values for each column that is not sparse; an empty one stands
    for none.

    Raises:
      InvalidArgumentError: if a feature has another dtype, or a default value that does not fit.
    """
    defaults: list[Array] = []
    columns: list[Column] = []
    for key, feature in features.items():
        dtype = _dtype_name(key, feature.dtype)
        if isinstance(feature, VarLenFeature):
            columns.append([key, "sparse", dtype, []])
            continue
        is_fixed = isinstance(feature, FixedLenFeature)
        shape = [int(n) for n in feature.shape]
        columns.append([key, "fixed" if is_fixed else "sequence", dtype, shape])
        defaults.append(_default(key, feature.default_value, dtype, shape if is_fixed else []))
    return defaults, columns


def _dtype_name(key: str, dtype: Any) -> str:
    if dtype in (str, bytes, string):
        return string.name
    try:
        name = dtype if dtype in _DTYPES else np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in _DTYPES:
        raise InvalidArgumentError(f"feature {key!r}: {name} is none of {', '.join(_DTYPES)}")
    return str(name)


def _default(key: str, value: Any, dtype: str, shape: list[int]) -> Array:
    if value is None:
        return np.empty(0, object if dtype == string.name else dtype)
    try:
        array = as_strings(value) if dtype == string.name else np.asarray(value, dtype)
        return np.broadcast_to(array, shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"feature {key!r}: the default value {value!r:.80} is no {dtype}{shape}: {error}"
        ) from error
