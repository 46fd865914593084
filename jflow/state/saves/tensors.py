"""Tensors of checkpoints as the values of variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from jflow.base.values import NUMBERS, Array, shape_text
from jflow.errors import InvalidArgumentError
from jflow.state.checkpoint_files import Checkpoint, open_checkpoint
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.saves.items import StateSource

READ_TENSOR = "read_tensor"
"""The host function that reads a tensor of a checkpoint."""

_NARROWER = {"int64": "int32", "uint64": "uint32"}
_LEAST = float(np.finfo(np.float32).tiny)


def fits_dtype(saved: str, wanted: str) -> bool:
    """Returns whether a variable takes a tensor of a dtype: its own, or an integer of 64 bits.

    Without JAX's `jax_enable_x64` the integers of a program have 32 bits, as its global step, which
    has 64 in TensorFlow.
    """
    return saved == wanted or _NARROWER.get(saved) == wanted


def read_fitting(
    checkpoint: Checkpoint, key: str, wanted: str, region: Sequence[slice] | None = None
) -> Array:
    """Returns a tensor, or a region of it, as a variable of a dtype that fits it.

    Raises:
      InvalidArgumentError: if an integer of it has too many bits.
      OpError: as `Checkpoint.read`.
    """
    value = checkpoint.read(key, region)
    if checkpoint.info(key).dtype == wanted:
        return value
    narrow = value.astype(NUMBERS[wanted])
    if not np.array_equal(narrow, value):
        raise InvalidArgumentError(
            f"key {key!r} of {checkpoint.path!r} has integers of 64 bits, which do not fit a "
            f"variable of {wanted}; call jax.config.update('jax_enable_x64', True) first"
        )
    return narrow


def count_of_powers(checkpoint: Checkpoint, powers: Sequence[StateSource]) -> int:
    """Returns how often TensorFlow has multiplied powers of numbers, which begin with the numbers.

    Powers of float32 stop at the smallest numbers, the first ones earlier than the last. Then it is
    the count at which the last one has stopped.

    Raises:
      InvalidArgumentError: if one is not a power of its number.
    """
    for one in powers:
        stored = np.asarray(checkpoint.read(one.key))
        if stored.shape or stored.dtype.kind != "f":
            raise InvalidArgumentError(
                f"key {one.key!r} of {checkpoint.path!r} is {stored.dtype.name} of shape "
                f"{stored.shape}; expected a power of {one.base:g}, a float"
            )
        power = float(stored)
        if 0 <= power <= _LEAST:
            continue
        count = math.log(power) / math.log(one.base) - 1 if power > 0 else math.nan
        # What is rounded in each multiplication adds up, to less than this in so many of them.
        is_count = count > 1000 or (count > -0.1 and abs(count - round(count)) < 0.1)
        if not is_count:
            raise InvalidArgumentError(
                f"key {one.key!r} of {checkpoint.path!r} is {power:g}, which is no power of "
                f"{one.base:g}: expected an optimizer with the numbers of the one that was saved"
            )
        return round(count)
    return math.ceil(math.log(_LEAST) / math.log(powers[-1].base))


def tensor_functions(allowed: AllowedDirectories) -> Mapping[str, Callable[..., Sequence[Array]]]:
    """Returns the host functions that read checkpoints.

    Args:
      allowed: where they may be.
    """
    return {READ_TENSOR: partial(_read_tensor, allowed)}


def _read_tensor(
    allowed: AllowedDirectories,
    *,
    prefix: str,
    key: str,
    dtype: str,
    begin: list[int],
    shape: list[int],
    full_shape: list[int],
) -> tuple[Array]:
    """Reads a region of a tensor in physical form.

    Args:
      prefix: the checkpoint.
      key: the tensor.
      dtype: the dtype of the variable.
      begin, shape: the region.
      full_shape: the shape that the tensor must have.
    """
    with open_checkpoint(prefix, allowed) as checkpoint:
        info = checkpoint.info(key)
        if not fits_dtype(info.dtype, dtype) or info.shape != tuple(full_shape):
            raise InvalidArgumentError(
                f"key {key!r} of {checkpoint.path!r} is {info.dtype}{shape_text(info.shape)}, "
                f"expected {dtype}{shape_text(tuple(full_shape))}"
            )
        region = [slice(first, first + n) for first, n in zip(begin, shape, strict=False)]
        return (read_fitting(checkpoint, key, dtype, region),)
