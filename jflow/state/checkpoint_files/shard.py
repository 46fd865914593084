"""Writes a shard: the file with what one task saves.

The file is written once, from its beginning to its end, a block at a time: arrays in C order are
not copied, and nothing is larger in memory than the array that is being written.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jflow.base.failpoints import failpoint
from jflow.base.values import (
    NUMBERS,
    Array,
    SaveSliceInfo,
    is_string_tensor,
    logical_shape,
    raw_bytes,
    string,
    type_name,
)
from jflow.errors import InvalidArgumentError
from jflow.state.checkpoint_files.item import Item
from jflow.state.checkpoint_files.layout import (
    BLOCK_BYTES,
    MAX_HEADER_BYTES,
    ShardRecord,
    ShardTable,
    StateEntry,
    TensorEntry,
    shard_name,
)
from jflow.state.checkpoint_files.prefix import CheckpointPrefix
from jflow.state.checkpoint_files.storage import FileSink
from jflow.state.records.crc32c import checksum
from jflow.state.resources.kinds import packed

_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 64
_METADATA = "__metadata__"

_DTYPES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
}


class NamedBytes(NamedTuple):
    """A tensor of the safetensors header.

    Attributes:
      name: its name.
      dtype: the name of its dtype in jflow; one that the format lacks is written as bytes.
      shape: its shape.
      n_bytes: its size.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int


def header(tensors: Iterable[NamedBytes]) -> bytes:
    """Builds the safetensors header of a file with these tensors, in the order of their bytes."""
    names = {_METADATA}
    fields: dict[str, object] = {_METADATA: {"format": "jflow"}}
    begin = 0
    for tensor in tensors:
        name = tensor.name
        while name in names:
            name += "'"
        names.add(name)
        dtype, shape = _format_entry(tensor)
        offsets = [begin, begin + tensor.n_bytes]
        fields[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        begin += tensor.n_bytes
    text = json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()
    # Spaces after the JSON, as the format allows, so that the data are aligned.
    n_padding = -(_LENGTH.size + len(text)) % _ALIGNMENT
    return _LENGTH.pack(len(text) + n_padding) + text + b" " * n_padding


def _format_entry(tensor: NamedBytes) -> tuple[str, list[int]]:
    format_dtype = _DTYPES.get(tensor.dtype)
    if format_dtype is not None:
        return format_dtype, [*tensor.shape]
    if tensor.dtype in NUMBERS:
        return "U8", [*tensor.shape, NUMBERS[tensor.dtype].itemsize]
    return "U8", [tensor.n_bytes]


_TABLE, _SUMS = "__jflow_table__", "__jflow_sums__"
_SUM_BYTES = 4


def write_shard(
    prefix: CheckpointPrefix,
    save: str,
    task: str,
    items: Sequence[Item],
    written: Callable[[Item], object] = lambda _: None,
) -> ShardRecord:
    """Writes what a task saves to a shard, which is not part of a checkpoint before `commit`.

    Args:
      prefix: the checkpoint.
      save: the number of the save, 16 hexadecimal digits; random, and the same for all tasks.
      task: what tells the shards of the save apart, such as "ps-0".
      items: what is saved. The array of each is read once, in an order of the writer's choice.
      written: called with each tensor as soon as its array is not needed any more.

    Returns:
      What `commit` needs; the file is on the disk.

    Raises:
      AlreadyExistsError: if the save has written this shard before.
      InvalidArgumentError: if a key occurs twice, or `save` or `task` is not valid.
      PermissionDeniedError: if the process may not write there.
      ResourceExhaustedError: if the disk or the quota is full; the file is removed.
    """
    name = shard_name(save, task)
    plan = _Plan(items)
    failpoint("checkpoint.before_shard")
    sink = prefix.storage.create(prefix.file(name), plan.n_bytes)
    try:
        crc = _write(sink, plan, written)
        sink.finish()
    except BaseException:
        sink.discard()
        raise
    failpoint("checkpoint.shard_written")
    return ShardRecord(name, plan.n_bytes, len(plan.head), len(plan.table), plan.n_sums, crc)


class _Planned(NamedTuple):
    """An array to be written.

    Attributes:
      name: its name in the header.
      entry: its entry in the table.
      array: the array, or what NumPy converts to it; of strings the serialized form.
      item: the item that is complete with it; None if more arrays of the item follow.
    """

    name: str
    entry: TensorEntry
    array: Any
    item: Item | None


class _Plan:
    """The layout of a shard, computed before anything is written.

    Attributes:
      arrays: in the order of the file.
      head, table: the header and the table.
      n_sums: the bytes of the checksums.
      n_bytes: the size of the file.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.arrays: list[_Planned] = []
        self._offset = self._n_blocks = 0
        _check_keys(items)
        tensors = [item for item in items if item.state is None]
        # As in other writers of the format, wide dtypes come first, so that all are aligned.
        tensors.sort(key=lambda item: -int(item.array.dtype.itemsize))
        entries = tuple(map(self._add_tensor, tensors))
        states = tuple(self._add_state(item) for item in items if item.state is not None)
        self.table = ShardTable(BLOCK_BYTES, entries, states).to_bytes()
        self.n_sums = _SUM_BYTES * self._n_blocks
        self.head = header(
            [
                *(
                    NamedBytes(one.name, one.entry.stored, one.entry.shape, one.entry.n_bytes)
                    for one in self.arrays
                ),
                NamedBytes(_TABLE, "uint8", (len(self.table),), len(self.table)),
                NamedBytes(_SUMS, "uint32", (self._n_blocks,), self.n_sums),
            ]
        )
        if len(self.head) > MAX_HEADER_BYTES:
            raise InvalidArgumentError(
                f"a task cannot save {len(self.arrays)} tensors: their names take "
                f"{len(self.head)} bytes, of at most {MAX_HEADER_BYTES}"
            )
        self.n_bytes = len(self.head) + self._offset + len(self.table) + self.n_sums

    def _add_tensor(self, item: Item) -> TensorEntry:
        name = item.key
        if item.slice is not None:
            name += f"[{', '.join(map(str, item.slice.var_offset))}]"
        return self._add(name, item.key, item.array, item.dtype, item.slice, item)

    def _add_state(self, item: Item) -> StateEntry:
        assert item.state is not None
        kind, saved = packed(item.state)
        entries = tuple(
            self._add(f"{item.key}#{i}", "", array, type_name(array), None, None)
            for i, array in enumerate(saved.arrays)
        )
        return StateEntry(item.key, kind, saved.record, entries)

    def _add(
        self,
        name: str,
        key: str,
        array: Any,
        dtype: str,
        info: SaveSliceInfo | None,
        item: Item | None,
    ) -> TensorEntry:
        """Adds an array after the others. Raises InvalidArgumentError for an unknown dtype."""
        shape, stored = tuple(array.shape), type_name(array)
        if is_string_tensor(array):
            array = raw_bytes(array)
            n_bytes = array.nbytes
        elif stored in NUMBERS:
            n_bytes = math.prod(shape) * NUMBERS[stored].itemsize
        else:
            raise InvalidArgumentError(f"{name!r} cannot be saved: {stored} has no physical form")
        visible = logical_shape(shape, dtype)
        begin, full_shape = (0,) * len(visible), visible
        if info is not None:
            begin, full_shape = info.var_offset, info.full_shape
        entry = TensorEntry(
            key, dtype, stored, shape, begin, full_shape, self._offset, n_bytes, self._n_blocks
        )
        self.arrays.append(_Planned(name, entry, array, item))
        self._offset += n_bytes
        self._n_blocks += -(-n_bytes // BLOCK_BYTES)
        return entry


def _check_keys(items: Sequence[Item]) -> None:
    """Raises InvalidArgumentError if a key would be in the shard twice."""
    seen: set[tuple[str, tuple[int, ...] | None]] = set()
    for item in items:
        one = item.key, None if item.slice is None else item.slice.var_offset
        if one in seen or (one[1] is not None and (item.key, None) in seen):
            raise InvalidArgumentError(f"{item.key!r} cannot be saved twice in one checkpoint")
        seen.add(one)


def _write(sink: FileSink, plan: _Plan, written: Callable[[Item], object]) -> int:
    """Writes a shard; returns the CRC of the header, the table and the checksums."""
    sums: list[int] = []
    sink.write(memoryview(plan.head))
    for number, planned in enumerate(plan.arrays):
        for block in _blocks(planned):
            sums.append(checksum(block))
            sink.write(block.data)
        if planned.item is not None:
            written(planned.item)
        if number == len(plan.arrays) // 2:
            failpoint("checkpoint.in_shard")
    tail = plan.table, np.array(sums, "<u4").tobytes()
    for data in tail:
        sink.write(memoryview(data))
    return checksum(plan.head + tail[0] + tail[1])


def _blocks(planned: _Planned) -> Iterator[Array]:
    """Yields the bytes of an array in the blocks that have checksums."""
    entry = planned.entry
    value: Array = np.asarray(planned.array)
    if entry.stored == string.name:
        dtype = np.dtype(np.uint8)
    elif (type_name(value), value.shape) == (entry.stored, entry.shape):
        dtype = NUMBERS[entry.stored]
    else:
        raise InvalidArgumentError(
            f"{planned.name!r} was {entry.stored}{entry.shape} when the save began, and is "
            f"{type_name(value)}{value.shape} now"
        )
    # In little-endian order, and without a copy if it is so already.
    ordered = np.ascontiguousarray(value, dtype.newbyteorder("<"))
    data = ordered.reshape(-1).view(np.uint8)
    for begin in range(0, len(data), BLOCK_BYTES):
        yield data[begin : begin + BLOCK_BYTES]
