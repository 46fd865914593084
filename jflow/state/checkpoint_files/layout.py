"""The layout of checkpoint files: names, records and their limits.

A checkpoint `PREFIX` is a manifest `PREFIX.index`, and a shard of each task that saved, a file
`PREFIX.SAVE.TASK.safetensors`, where SAVE is a random number of the save. The manifest comes last
and replaces the former one, so the checkpoint is what the manifest names; all other shards are
left over from saves that failed.

A shard is a file of the safetensors format, which other tools open: a header in JSON, then the
bytes of all tensors without gaps. jflow itself reads neither header nor JSON. The last two
"tensors" are its own: the table of what is in the file, a packed `ShardTable`, and the CRC-32C of
each block of the data. The manifest has the CRC-32C of the header, the table and the CRCs, so that
each byte of each file is under a checksum, and nothing is interpreted before it was checked.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from typing import Annotated, ClassVar

from jflow.base.packing import Limits, Meta, Record, Size
from jflow.base.values import NUMBERS, string
from jflow.errors import DataLossError, InvalidArgumentError
from jflow.state.records.crc32c import checksum

BLOCK_BYTES = 4 << 20
"""The size of a block of data, which has one checksum, in bytes."""

MAX_HEADER_BYTES = 100_000_000
"""The longest header that the safetensors library reads."""

VERSION = 1

_Sizes = tuple[Size, ...]
_Checksum = Annotated[int, Meta(ge=0, le=2**32 - 1)]

_MANIFEST = ".index"
MANIFEST_MAGIC = b"JFLOW-CK"
"""The first bytes of a manifest."""

_HEADER = struct.Struct("<8sQI")  # magic, bytes of the record, CRC-32C of the record
_SAVE = "[0-9a-f]{16}"
_SHARD = re.compile(rf"{_SAVE}\.[A-Za-z0-9_-]{{1,100}}\.safetensors")
_WRITTEN = re.compile(
    rf"(?P<prefix>.+)\.(?P<save>{_SAVE})\.(?:[A-Za-z0-9_-]{{1,100}}\.safetensors|tmp)"
)
_BUNDLE_SHARD = re.compile(r"\.data-\d{5,}-of-\d{5,}")
_STEP = re.compile(r"-\d+\Z")
_MAX_RANK = 64  # of a NumPy array


class TensorEntry(Record, frozen=True):
    """The table entry of an array in a shard.

    Attributes:
      key: the name of the tensor; empty for an array of a state.
      dtype: the name of the dtype that programs see.
      stored: the name of the dtype of the array, which is in physical form, or "string".
      shape: the shape of the array.
      begin: the first index of the array in the whole tensor, in each dimension that programs see.
      full_shape: the shape of the whole tensor as programs see it.
      offset: where its bytes are behind the header.
      n_bytes: their number.
      first_sum: the number of the checksum of its first block.
    """

    what = "entry of a checkpoint"

    key: str
    dtype: str
    stored: str
    shape: _Sizes
    begin: _Sizes
    full_shape: _Sizes
    offset: Size
    n_bytes: Size
    first_sum: Size

    def __post_init__(self) -> None:
        rank = len(self.full_shape)
        is_inside = len(self.begin) == rank <= len(self.shape) <= min(rank + 1, _MAX_RANK) and all(
            begin + size <= full
            for begin, size, full in zip(self.begin, self.shape, self.full_shape, strict=False)
        )
        is_string = self.stored == string.name
        if not is_string and self.stored not in NUMBERS:
            raise InvalidArgumentError(f"unknown dtype {self.stored!r} of {self.key!r}")
        size = 8 if is_string else NUMBERS[self.stored].itemsize
        n_least = math.prod(self.shape) * size
        if not is_inside or (self.n_bytes < n_least if is_string else self.n_bytes != n_least):
            raise InvalidArgumentError(
                f"{self.key!r} cannot be {self.n_bytes} bytes of {self.stored}{self.shape} at "
                f"{self.begin} of {self.full_shape}"
            )

    @property
    def full_array_shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor in physical form."""
        return (*self.full_shape, *self.shape[len(self.full_shape) :])


class StateEntry(Record, frozen=True):
    """The table entry of a resource's snapshot: its record, and the entries of its arrays."""

    what = "state in a checkpoint"

    key: str
    kind: str
    record: bytes
    arrays: tuple[TensorEntry, ...]


class ShardTable(Record, frozen=True):
    """The table of a shard.

    Attributes:
      block_bytes: the bytes of data under one checksum; an entry begins with a block of its own.
      entries: the tensors and slices of tensors.
      states: the states of other resources.
    """

    what = "table of a checkpoint"
    limits: ClassVar[Limits] = Limits(1 << 28, 1 << 26, 1 << 23)

    block_bytes: Annotated[int, Meta(ge=1, le=1 << 30)]
    entries: tuple[TensorEntry, ...]
    states: tuple[StateEntry, ...]


class ShardRecord(Record, frozen=True):
    """The manifest's record of a shard.

    Attributes:
      file: the name of the file, without the prefix of the checkpoint.
      n_bytes: the size of the file.
      n_head, n_table, n_sums: the bytes of the header, the table and the checksums; the data are
        between header and table.
      crc: the CRC-32C of header, table and checksums.
    """

    what = "shard of a checkpoint"

    file: str
    n_bytes: Size
    n_head: Size
    n_table: Size
    n_sums: Size
    crc: _Checksum

    def __post_init__(self) -> None:
        if not _SHARD.fullmatch(self.file):
            raise InvalidArgumentError(f"invalid name of a shard: {self.file!r}")
        if self.n_head > MAX_HEADER_BYTES or self.n_table > ShardTable.limits.n_bytes:
            raise InvalidArgumentError(f"{self.file!r} has a header or table that is too long")
        if self.n_head + self.n_table + self.n_sums > self.n_bytes or self.n_sums % 4:
            raise InvalidArgumentError(f"{self.file!r} is smaller than what is in it")


class Manifest(Record, frozen=True):
    """The manifest of a checkpoint: the shards of one save.

    Attributes:
      version: of the format.
      save: the number of the save.
      about: what the saver says of it; not interpreted.
      shards: the shards.
    """

    what = "manifest of a checkpoint"
    limits: ClassVar[Limits] = Limits(1 << 24, 1 << 20, 1 << 20)

    version: Annotated[int, Meta(ge=VERSION, le=VERSION)]
    save: str
    about: Mapping[str, str]
    shards: tuple[ShardRecord, ...]

    def to_file(self) -> bytes:
        """Encodes the manifest as the content of its file."""
        data = self.to_bytes()
        return _HEADER.pack(MANIFEST_MAGIC, len(data), checksum(data)) + data

    @classmethod
    def from_file(cls, data: bytes, path: str) -> Manifest:
        """Decodes the content of a manifest's file. Raises DataLossError if it is damaged."""
        if len(data) < _HEADER.size or not data.startswith(MANIFEST_MAGIC):
            raise DataLossError(f"{path!r} is not a manifest of a checkpoint, or is damaged")
        _, n_bytes, crc = _HEADER.unpack_from(data)
        record = data[_HEADER.size :]
        if n_bytes != len(record):
            raise DataLossError(
                f"{path!r} is damaged: expected {n_bytes} bytes at offset {_HEADER.size}, got "
                f"{len(record)}"
            )
        if crc != checksum(record):
            raise DataLossError(f"{path!r} is damaged: wrong CRC at offset {_HEADER.size}")
        try:
            return cls.from_bytes(record)
        except InvalidArgumentError as error:
            raise DataLossError(f"{path!r} cannot be read: {error.message}") from None


MAX_MANIFEST_BYTES = Manifest.limits.n_bytes + _HEADER.size


def manifest_name(prefix: str) -> str:
    """Returns the name of the manifest of a checkpoint."""
    return prefix + _MANIFEST


def temporary_name(prefix: str, save: str) -> str:
    """Returns the temporary name of the manifest until it is complete."""
    return f"{prefix}.{save}.tmp"


def shard_name(save: str, task: str) -> str:
    """Returns the name of a shard, without the prefix of the checkpoint.

    Args:
      save: the number of the save, 16 hexadecimal digits.
      task: what tells the shards of a save apart, such as "ps-0".

    Raises:
      InvalidArgumentError: if one of them is not valid.
    """
    name = f"{save}.{task}.safetensors"
    if not _SHARD.fullmatch(name):
        raise InvalidArgumentError(
            f"expected a save of 16 hexadecimal digits and a task of letters, digits, '-' and '_', "
            f"got {save!r} and {task!r}"
        )
    return name


def bundle_shard_name(prefix: str, number: int, n_shards: int) -> str:
    """Returns the name of a shard of a V2 checkpoint of TensorFlow."""
    return f"{prefix}.data-{number:05d}-of-{n_shards:05d}"


def is_bundle_shard(name: str, prefix: str) -> bool:
    """Returns whether a file is a shard of a V2 checkpoint with this prefix."""
    return name.startswith(f"{prefix}.") and bool(_BUNDLE_SHARD.fullmatch(name, len(prefix)))


def written_by(name: str, prefix: str) -> tuple[str, str] | None:
    """Parses the name of a file that a save of this prefix, or another step of it, wrote.

    Returns:
      The prefix and the number of the save; None for all other files, and for manifests.
    """
    match = _WRITTEN.fullmatch(name)
    if match is None or _STEP.sub("", match["prefix"]) != _STEP.sub("", prefix):
        return None
    return match["prefix"], match["save"]
