"""`Checkpoint`: the interface of checkpoints that are open for reading."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jflow.base.handles import Closing
from jflow.base.values import NUMBERS, Array, string
from jflow.errors import InvalidArgumentError, NotFoundError
from jflow.state.checkpoint_files.regions import TensorBox, empty
from jflow.state.resources.snapshot import Snapshot

TensorRegion = Sequence[slice]
"""One slice with step 1 for each dimension of the whole tensor."""


@dataclass(frozen=True)
class SavedTensor:
    """The dtype and shape of a tensor in a checkpoint.

    Attributes:
      dtype: the name of the dtype that programs see, such as "int4".
      shape: the shape of the whole tensor as programs see it.
      stored: the name of the dtype of the arrays that `Checkpoint.read` returns.
      trailing: the further sizes that these arrays have: one for random keys.
    """

    dtype: str
    shape: tuple[int, ...]
    stored: str
    trailing: tuple[int, ...] = ()

    @property
    def n_bytes(self) -> int:
        """Its size in memory, in bytes; 0 for strings, whose sizes differ."""
        number = NUMBERS.get(self.stored)
        return 0 if number is None else math.prod(self.shape + self.trailing) * number.itemsize


class Checkpoint(Closing, ABC):
    """A checkpoint open for reading: tensors by key, whole or in regions, and states of resources.

    Attributes:
      path: its prefix or directory.
      about: what the saver said of it.
    """

    path: str
    about: Mapping[str, str]
    _tensors: Mapping[str, object]

    def keys(self) -> list[str]:
        """Returns the keys of all tensors, sorted."""
        return sorted(self._tensors)

    def info(self, key: str) -> SavedTensor:
        """Returns the dtype and shape of a tensor. Raises NotFoundError if there is none."""
        if key not in self._tensors:
            raise self._missing_error(key, "tensors", self.keys())
        return self._info(key)

    def state_keys(self) -> list[str]:
        """Returns the keys of the states of resources, sorted."""
        return []

    def state(self, key: str) -> Snapshot:
        """Returns the state of a resource.

        Raises:
          DataLossError: if it is damaged.
          NotFoundError: if there is none.
        """
        raise self._missing_error(key, "states", self.state_keys())

    @abstractmethod
    def verify(self) -> None:
        """Reads and checks everything. Raises DataLossError, with file and offset, for damage."""

    @abstractmethod
    def close(self) -> None:
        """Closes the files."""

    @abstractmethod
    def _info(self, key: str) -> SavedTensor:
        """Returns the dtype and shape of a tensor that is there."""

    @abstractmethod
    def _read(self, key: str, info: SavedTensor, box: TensorBox, target: Array) -> None:
        """Reads a nonempty region of a tensor into an array."""

    def _check(self, key: str, info: SavedTensor, box: TensorBox) -> None:
        """Raises an error if a region cannot be read, before there is memory for it."""

    def __contains__(self, key: object) -> bool:
        return key in self._tensors

    def read(self, key: str, region: TensorRegion | None = None, out: Array | None = None) -> Array:
        """Returns a tensor, or a region of it, in physical form.

        Args:
          key: its key.
          region: a slice for each dimension that programs see; None for the whole tensor.
          out: an array that it is read into, of the shape of the region and the dtype that is
            stored; a new one if None.

        Returns:
          The array: an int4 as int8, random keys as their data, strings as `bytes` objects.

        Raises:
          DataLossError: if the file is damaged; with file, offset and key.
          InvalidArgumentError: if the region is outside of the tensor, or `out` does not fit.
          NotFoundError: if there is no such tensor.
          ResourceExhaustedError: if there is not enough memory.
          UnimplementedError: if it has a dtype of TensorFlow's that jflow lacks.
        """
        info = self.info(key)
        box = _box(key, info, region)
        self._check(key, info, box)
        shape = (*box.shape, *info.trailing)
        is_string = info.stored == string.name
        dtype = np.dtype(object) if is_string else NUMBERS[info.stored]
        if out is None:
            out = np.empty(shape, object) if is_string else empty(shape, dtype)
        elif out.shape != shape or out.dtype != dtype:
            raise InvalidArgumentError(
                f"{key!r} cannot be read into an array of {out.dtype}{out.shape}; expected "
                f"{info.stored}{shape}"
            )
        if out.size:
            self._read(key, info, box, out)
        return out

    def _missing_error(self, key: str, what: str, there: Sequence[str]) -> NotFoundError:
        names = ", ".join(map(repr, there[:20])) or "none"
        more = f" and {len(there) - 20} more" if len(there) > 20 else ""
        return NotFoundError(
            f"key {key!r} not found in checkpoint {self.path!r}; its {what} are {names}{more}"
        )

    def _leave(self, failed: bool) -> None:
        self.close()


def _box(key: str, info: SavedTensor, region: TensorRegion | None) -> TensorBox:
    if region is None:
        return TensorBox((0,) * len(info.shape), info.shape)
    begin = tuple(one.start or 0 for one in region)
    end = tuple(
        size if one.stop is None else one.stop
        for one, size in zip(region, info.shape, strict=False)
    )
    is_inside = len(region) == len(info.shape) and all(
        0 <= low <= high <= size and one.step in (None, 1)
        for low, high, size, one in zip(begin, end, info.shape, region, strict=True)
    )
    if not is_inside:
        raise InvalidArgumentError(
            f"{[*region]} is not a region of {key!r}, whose shape is {info.shape}"
        )
    return TensorBox(begin, end)
