"""`BundleCheckpoint`: reads checkpoints that TensorFlow wrote, in the V2 format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from itertools import accumulate, pairwise

import numpy as np

from jflow.base.values import NUMBERS, Array, string, to_physical
from jflow.errors import DataLossError, UnimplementedError
from jflow.state.checkpoint_files.bundle_index import BundleIndex, BundlePiece, BundleTensor
from jflow.state.checkpoint_files.checkpoint import Checkpoint, SavedTensor
from jflow.state.checkpoint_files.layout import bundle_shard_name, manifest_name
from jflow.state.checkpoint_files.prefix import CheckpointPrefix
from jflow.state.checkpoint_files.regions import TensorBox, read_box, read_pieces
from jflow.state.checkpoint_files.sorted_table import varint
from jflow.state.checkpoint_files.storage import FileSource
from jflow.state.records.crc32c import extended, masked

_CHUNK_BYTES = 4 << 20
_SUM_BYTES = 4
_MAX_WORD = 2**32 - 1


class BundleCheckpoint(Checkpoint):
    """An open V2 checkpoint of TensorFlow.

    All shards are opened, and the index is checked, at the beginning. A tensor has one checksum,
    so the first read of a region of it reads all of its stored slice.

    Args:
      prefix: the checkpoint, which this closes.

    Raises:
      DataLossError: if the index is damaged, or a shard is missing or too short.
      NotFoundError: if there is no such checkpoint.
      UnimplementedError: if the index is compressed, big-endian, or of a later version.
    """

    _tensors: Mapping[str, BundleTensor]

    def __init__(self, prefix: CheckpointPrefix) -> None:
        self.path = prefix.path
        self.about = {}
        self._prefix = prefix
        self._shards: dict[int, FileSource] = {}
        self._verified: set[BundlePiece] = set()
        try:
            with prefix.storage.open(manifest_name(prefix.name)) as file:
                index = BundleIndex(file)
            self._tensors = index.tensors
            self._open_shards(index.n_shards)
        except BaseException:
            self.close()
            raise

    def _open_shards(self, n_shards: int) -> None:
        for key, tensor in self._tensors.items():
            for piece in tensor.pieces:
                if piece.shard not in self._shards:
                    name = bundle_shard_name(self._prefix.name, piece.shard, n_shards)
                    self._shards[piece.shard] = self._prefix.open(name)
                shard = self._shards[piece.shard]
                if piece.offset + piece.n_bytes > shard.n_bytes:
                    raise DataLossError(
                        f"{shard.path!r} is damaged: {key!r} has {piece.n_bytes} bytes at offset "
                        f"{piece.offset}, the file {shard.n_bytes}"
                    )

    def verify(self) -> None:
        for key, tensor in self._tensors.items():
            for piece in tensor.pieces:
                if tensor.info.stored == string.name:
                    self._strings(piece, key)
                elif tensor.info.stored in NUMBERS:
                    self._verify(piece, key)

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()
        self._prefix.close()

    def _info(self, key: str) -> SavedTensor:
        return self._tensors[key].info

    def _check(self, key: str, info: SavedTensor, box: TensorBox) -> None:
        if info.stored not in NUMBERS and info.stored != string.name:
            raise UnimplementedError(
                f"{key!r} of {self.path!r} has TensorFlow's dtype {info.dtype}, which jflow lacks"
            )
        common = (box.common(piece.box) for piece in self._tensors[key].pieces)
        n_stored = sum(math.prod(one.shape) for one in common if one is not None)
        if n_stored != math.prod(box.shape):
            raise DataLossError(
                f"{self.path!r} has {n_stored} of {math.prod(box.shape)} elements of {key!r}: "
                "slices of it were not saved"
            )

    def _read(self, key: str, info: SavedTensor, box: TensorBox, target: Array) -> None:
        pieces = self._tensors[key].pieces
        read_pieces(box, target, ((one.box, partial(self._read_piece, one, key)) for one in pieces))
        if info.dtype != info.stored:  # of fewer than eight bits, of which a byte has the lowest
            target[...] = to_physical(target.view(NUMBERS[info.dtype]))

    def _read_piece(self, piece: BundlePiece, key: str, box: TensorBox, target: Array) -> None:
        if target.dtype == object:
            target[...] = self._strings(piece, key)[box.index]
        elif box.shape == piece.box.shape and target.flags.c_contiguous:
            data = target.reshape(-1).view(np.uint8)
            self._shards[piece.shard].read_into(piece.offset, data.data)
            self._compare(piece, key, extended(0, data))
        else:
            self._verify(piece, key)
            read = self._shards[piece.shard].read_into
            read_box(read, piece.box.shape, box, target, piece.offset)

    def _verify(self, piece: BundlePiece, key: str) -> None:
        """Reads a piece of numbers once, and raises DataLossError if it is damaged."""
        if piece in self._verified:
            return
        crc, chunk = 0, np.empty(min(_CHUNK_BYTES, piece.n_bytes), np.uint8)
        for begin in range(0, piece.n_bytes, _CHUNK_BYTES):
            data = chunk[: piece.n_bytes - begin]
            self._shards[piece.shard].read_into(piece.offset + begin, data.data)
            crc = extended(crc, data)
        self._compare(piece, key, crc)
        self._verified.add(piece)

    def _compare(self, piece: BundlePiece, key: str, crc: int) -> None:
        if masked(crc) != piece.crc:
            raise self._damage(piece, key, "wrong CRC")

    def _damage(self, piece: BundlePiece, key: str, what: str) -> DataLossError:
        return DataLossError(
            f"{self._shards[piece.shard].path!r} is damaged: {what} of {key!r}, offset "
            f"{piece.offset} to {piece.offset + piece.n_bytes}"
        )

    def _strings(self, piece: BundlePiece, key: str) -> Array:
        """Returns strings. Stored are their lengths, the CRC of these, and the bytes of all.

        The CRC of the whole is of the lengths as words, and of what follows them.
        """
        shape, lengths, at = piece.box.shape, [], 0
        data = self._shards[piece.shard].read(piece.offset, piece.n_bytes)
        try:
            for _ in range(math.prod(shape)):
                length, at = varint(data, at)
                lengths.append(length)
        except ValueError as error:
            raise self._damage(piece, key, f"{error} of the lengths") from None
        begin = at + _SUM_BYTES
        if begin + sum(lengths) != len(data):
            raise self._damage(piece, key, f"{sum(lengths)} bytes instead of {len(data) - begin}")
        crc = extended(0, b"".join(map(_word, lengths)))
        self._compare(piece, key, extended(crc, data[at:]))
        strings = np.empty(len(lengths), object)
        strings[:] = [data[a:b] for a, b in pairwise(accumulate(lengths, initial=begin))]
        return strings.reshape(shape)


def _word(length: int) -> bytes:
    """Returns a length as its checksum sees it."""
    return length.to_bytes(4 if length <= _MAX_WORD else 8, "little")
