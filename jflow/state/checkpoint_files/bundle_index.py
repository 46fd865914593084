"""Reads the index of a TensorFlow V2 checkpoint: which tensors it has, and where they are.

A V2 checkpoint `PREFIX`, a "tensor bundle", is an index `PREFIX.index`, a sorted table, and shards
`PREFIX.data-00000-of-00002`, which are the bytes of tensors. The key "" of the index has a header,
each other key is the name of a tensor. A partitioned tensor has the whole shape there and a list of
its slices; each of them has an entry of its own, whose key is made of the name and the slice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from jflow.base.values import NUMBERS, TensorSpec, string
from jflow.errors import DataLossError, UnimplementedError
from jflow.state.checkpoint_files.checkpoint import SavedTensor
from jflow.state.checkpoint_files.ordered_code import signed_number, text, unsigned_number
from jflow.state.checkpoint_files.regions import TensorBox, box_of, do_overlap
from jflow.state.checkpoint_files.sorted_table import read_table
from jflow.state.checkpoint_files.storage import FileSource
from jflow.state.records.v1 import tensor_bundle_pb2 as pb

M = TypeVar("M", bound=Message)

VERSION = 1
"""The version of the format."""

_LITTLE_ENDIAN, _BIG_ENDIAN = 0, 1
_MAX_RANK = 64  # of a NumPy array
_MAX_BYTES = 2**63 - 1
_STRING_SUM_BYTES = 4
_NAMES = """
    float32 float64 int32 uint8 int16 int8 string complex64 int64 bool qint8 quint8 qint32 bfloat16
    qint16 quint16 uint16 complex128 float16 resource variant uint32 uint64 float8_e5m2
    float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2fnuz int4 uint4 int2 uint2
    float4_e2m1fn
"""
DTYPES = dict(enumerate(_NAMES.split(), start=1))
"""The names of dtypes by TensorFlow's numbers."""

_SLICE = unsigned_number(0)
"""What the keys of slices begin with, and no name does."""


class BundlePiece(NamedTuple):
    """A tensor, or a slice of one, in a shard.

    Attributes:
      shard: the number of the shard.
      offset, n_bytes: where its bytes are in the shard.
      crc: the masked CRC-32C of its value.
      box: the region of the whole tensor that it is.
    """

    shard: int
    offset: int
    n_bytes: int
    crc: int
    box: TensorBox


class BundleTensor(NamedTuple):
    """A tensor of an index.

    Attributes:
      info: its dtype and shape; TensorFlow's name of a dtype that jflow lacks.
      pieces: the tensor, or its slices, which do not overlap; elements may be missing.
    """

    info: SavedTensor
    pieces: list[BundlePiece]


class BundleIndex:
    """The index of a V2 checkpoint.

    Args:
      file: the file `PREFIX.index`.

    Attributes:
      n_shards: the number of shards.
      tensors: by name.

    Raises:
      DataLossError: with the file and what is wrong, if it is damaged.
      UnimplementedError: if it is compressed, big-endian, or of a later version.
    """

    def __init__(self, file: FileSource) -> None:
        self._path = file.path
        table = dict(read_table(file))
        if b"" not in table:
            raise self._damage("it has no header")
        self.n_shards = self._read_header(table.pop(b""))
        self._entries = {
            key: self._parse(pb.BundleEntry, value, key) for key, value in table.items()
        }
        self.tensors: Mapping[str, BundleTensor] = {
            self._name(key): self._tensor(key, entry)
            for key, entry in self._entries.items()
            if not key.startswith(_SLICE)
        }

    def _damage(self, what: str) -> DataLossError:
        return DataLossError(f"{self._path!r} is damaged: {what}")

    def _parse(self, kind: type[M], value: bytes, key: bytes) -> M:
        try:
            return kind.FromString(value)
        except DecodeError as error:
            raise self._damage(f"the entry of {key!r} cannot be parsed: {error}") from None

    def _name(self, key: bytes) -> str:
        try:
            return key.decode()
        except UnicodeDecodeError:
            raise self._damage(f"the key {key!r} is no text") from None

    def _read_header(self, value: bytes) -> int:
        """Returns the number of shards."""
        header = self._parse(pb.BundleHeader, value, b"")
        if header.endianness == _BIG_ENDIAN:
            raise UnimplementedError(
                f"{self._path!r} is of a big-endian machine, which jflow does not read; restore "
                "the checkpoint in TensorFlow on a little-endian one and save it again"
            )
        version = header.version
        if version.min_consumer > VERSION or VERSION in version.bad_consumers:
            raise UnimplementedError(
                f"{self._path!r} is for readers of version {version.min_consumer} or later of the "
                f"format; jflow has {VERSION}"
            )
        if header.endianness != _LITTLE_ENDIAN or header.num_shards < 0:
            raise self._damage(
                f"its header has the endianness {header.endianness} and {header.num_shards} shards"
            )
        return header.num_shards

    def _tensor(self, key: bytes, entry: pb.BundleEntry) -> BundleTensor:
        info = self._info(key, entry)
        if not entry.slices:
            whole = box_of((0,) * len(info.shape), info.shape)
            return BundleTensor(info, [self._piece(key, entry, info, whole)])
        boxes = [self._box(key, one.extent, info.shape) for one in entry.slices]
        if do_overlap(boxes):
            raise self._damage(f"slices of {key!r} overlap")
        pieces = []
        for one, box in zip(entry.slices, boxes, strict=True):
            own_key = _slice_key(key, one.extent)
            own = self._entries.get(own_key)
            if own is None:
                raise self._damage(f"it has no entry of the slice {box} of {key!r}")
            own_info = self._info(own_key, own)
            if own.slices or (own_info.dtype, own_info.shape) != (info.dtype, box.shape):
                raise self._damage(
                    f"the slice {box} of {key!r} is {own_info.dtype}{own_info.shape}, expected "
                    f"{info.dtype}{box.shape}"
                )
            pieces.append(self._piece(own_key, own, own_info, box))
        return BundleTensor(info, pieces)

    def _info(self, key: bytes, entry: pb.BundleEntry) -> SavedTensor:
        dtype = DTYPES.get(entry.dtype)
        if dtype is None:
            raise self._damage(f"{key!r} has the unknown dtype {entry.dtype}")
        shape = tuple(dim.size for dim in entry.shape.dim)
        n_most = math.prod(max(size, 1) for size in shape) * 16  # of complex128
        if len(shape) > _MAX_RANK or min(shape, default=0) < 0 or n_most > _MAX_BYTES:
            raise self._damage(f"{key!r} has the shape {list(shape[:_MAX_RANK])}")
        if dtype in NUMBERS:
            return SavedTensor(dtype, shape, TensorSpec((), dtype).physical.dtype.name)
        return SavedTensor(dtype, shape, dtype)

    def _box(self, key: bytes, extents: Sequence[pb.Extent], shape: tuple[int, ...]) -> TensorBox:
        """Returns the region of a slice."""
        if len(extents) != len(shape):
            raise self._damage(f"a slice of {key!r} has {len(extents)} dimensions of {len(shape)}")
        begin = tuple(one.start for one in extents)
        end = tuple(
            one.start + one.length if one.HasField("length") else size
            for one, size in zip(extents, shape, strict=True)
        )
        if any(not 0 <= a <= b <= n for a, b, n in zip(begin, end, shape, strict=True)):
            raise self._damage(f"the slice {begin} to {end} is not inside of {key!r}, {shape}")
        return TensorBox(begin, end)

    def _piece(
        self, key: bytes, entry: pb.BundleEntry, info: SavedTensor, box: TensorBox
    ) -> BundlePiece:
        n_elements = math.prod(info.shape)
        if info.stored in NUMBERS:
            fits = entry.size == n_elements * NUMBERS[info.stored].itemsize
        else:
            # At least a byte for the length of each string, and the checksum of the lengths.
            is_string = info.stored == string.name and n_elements > 0
            fits = entry.size >= (n_elements + _STRING_SUM_BYTES if is_string else 0)
        if not fits or entry.offset < 0 or not 0 <= entry.shard_id < max(self.n_shards, 1):
            raise self._damage(
                f"{key!r}, {info.dtype}{info.shape}, has {entry.size} bytes at offset "
                f"{entry.offset} of shard {entry.shard_id} of {self.n_shards}"
            )
        return BundlePiece(entry.shard_id, entry.offset, entry.size, entry.crc32c, box)


def _slice_key(name: bytes, extents: Sequence[pb.Extent]) -> bytes:
    """Returns the key of a slice of a tensor."""
    key = _SLICE + text(name) + unsigned_number(len(extents))
    for one in extents:
        length = one.length if one.HasField("length") else -1
        key += signed_number(one.start) + signed_number(length)
    return key
