"""`NativeCheckpoint`: reads checkpoints in jflow's own format."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial
from typing import NamedTuple

from jflow.base.values import NUMBERS, Array, read_strings, string
from jflow.errors import DataLossError, InvalidArgumentError
from jflow.state.checkpoint_files.checkpoint import Checkpoint, SavedTensor
from jflow.state.checkpoint_files.commit import read_manifest
from jflow.state.checkpoint_files.layout import StateEntry, TensorEntry
from jflow.state.checkpoint_files.prefix import CheckpointPrefix
from jflow.state.checkpoint_files.regions import (
    TensorBox,
    box_of,
    do_overlap,
    empty,
    read_box,
    read_pieces,
)
from jflow.state.checkpoint_files.shard_reader import ShardReader
from jflow.state.resources.kinds import unpacked
from jflow.state.resources.snapshot import PackedSnapshot, Snapshot


class _Piece(NamedTuple):
    """A stored slice of a tensor."""

    shard: ShardReader
    entry: TensorEntry

    @property
    def box(self) -> TensorBox:
        """The region of the whole tensor that it covers, as programs see it."""
        return box_of(self.entry.begin, self.entry.shape[: len(self.entry.begin)])


class NativeCheckpoint(Checkpoint):
    """An open checkpoint in jflow's own format.

    All shards are opened, and their tables checked, at the beginning. A later save that replaces
    the checkpoint does not change what this reads.

    Args:
      prefix: the checkpoint, which this closes.

    Raises:
      DataLossError: if the manifest or a table is damaged, or a shard is missing.
      NotFoundError: if there is no such checkpoint.
    """

    def __init__(self, prefix: CheckpointPrefix) -> None:
        self.path = prefix.path
        self._prefix = prefix
        self._shards: list[ShardReader] = []
        self._tensors: dict[str, list[_Piece]] = defaultdict(list)
        self._states: dict[str, tuple[ShardReader, StateEntry]] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        manifest = read_manifest(self._prefix.storage, self._prefix.name)
        self.about = manifest.about
        for record in manifest.shards:
            shard = ShardReader(self._prefix, record)
            self._shards.append(shard)
            for entry in shard.table.entries:
                self._tensors[entry.key].append(_Piece(shard, entry))
            for state in shard.table.states:
                if state.key in self._states:
                    raise DataLossError(f"{self.path!r} has two states of {state.key!r}")
                self._states[state.key] = shard, state
        for key, pieces in self._tensors.items():
            self._check_whole(key, pieces)

    def state_keys(self) -> list[str]:
        return sorted(self._states)

    def state(self, key: str) -> Snapshot:
        if key not in self._states:
            raise self._missing_error(key, "states", self.state_keys())
        shard, saved = self._states[key]
        arrays = tuple(_read_whole(_Piece(shard, entry), key) for entry in saved.arrays)
        try:
            return unpacked(saved.kind, PackedSnapshot(saved.record, arrays))
        except InvalidArgumentError as error:
            raise DataLossError(
                f"the state of {key!r} in {self.path!r} cannot be read: {error}"
            ) from None

    def verify(self) -> None:
        for shard in self._shards:
            shard.verify()

    def close(self) -> None:
        for shard in self._shards:
            shard.close()
        self._prefix.close()

    def _info(self, key: str) -> SavedTensor:
        entry = self._tensors[key][0].entry
        rank = len(entry.full_shape)
        return SavedTensor(entry.dtype, entry.full_shape, entry.stored, entry.shape[rank:])

    def _read(self, key: str, info: SavedTensor, box: TensorBox, target: Array) -> None:
        pieces = self._tensors[key]
        read_pieces(
            box, target, ((one.box, partial(_read_piece, one, key, info)) for one in pieces)
        )

    def _check_whole(self, key: str, pieces: list[_Piece]) -> None:
        """Raises DataLossError unless the slices cover each element of a tensor exactly once."""
        first = pieces[0].entry
        is_same = all(
            (one.entry.dtype, one.entry.stored, one.entry.full_array_shape)
            == (first.dtype, first.stored, first.full_array_shape)
            for one in pieces
        )
        boxes = [one.box for one in pieces]
        n_elements = sum(math.prod(box.shape) for box in boxes)
        if not is_same or n_elements != math.prod(first.full_shape) or do_overlap(boxes):
            raise DataLossError(
                f"{self.path!r} does not have exactly one value of each element of {key!r}, but "
                f"slices that begin at {[box.begin for box in boxes[:20]]}"
            )


def _read_piece(piece: _Piece, key: str, info: SavedTensor, box: TensorBox, target: Array) -> None:
    """Reads a region of a stored array."""
    if info.stored == string.name:
        target[...] = _read_whole(piece, key)[box.index]
        return
    zeros = (0,) * len(info.trailing)
    stored = TensorBox((*box.begin, *zeros), (*box.end, *info.trailing))
    read_box(piece.shard.reader(piece.entry, key), piece.entry.shape, stored, target)


def _read_whole(piece: _Piece, key: str) -> Array:
    """Reads a whole stored array."""
    entry = piece.entry
    data = empty((entry.n_bytes,), NUMBERS["uint8"])
    piece.shard.reader(entry, key)(0, data.data)
    if entry.stored != string.name:
        return data.view(NUMBERS[entry.stored]).reshape(entry.shape)
    try:
        strings, end = read_strings(data, math.prod(entry.shape))
    except ValueError as error:
        raise DataLossError(f"the strings of {key!r} cannot be read: {error}") from None
    if end != entry.n_bytes:
        raise DataLossError(f"the strings of {key!r} have {end} of {entry.n_bytes} bytes")
    return strings.reshape(entry.shape)
