"""Reads and writes sorted tables: files of keys and values in LevelDB's format.

A table has blocks of entries, a block with the place of each of them, and a footer with the place
of that one. An entry is the number of bytes that its key shares with the key before, the rest of
the key, and the value. A block ends with a list of the keys that are whole, which only searches
need; behind it are the kind of its compression and a CRC-32C.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from itertools import takewhile

from jflow.errors import DataLossError, UnimplementedError
from jflow.state.checkpoint_files.storage import FileSource
from jflow.state.records.crc32c import checksum, masked

MAX_TABLE_BYTES = 1 << 26
"""The largest table that is read, in bytes."""

_MAX_KEY_BYTES = 1 << 16
_MAX_EXPANSION = 16
"""What the keys of a block may take, to its size: TensorFlow writes every 16th key as a whole."""

_MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER_BYTES = 48
_TRAILER = struct.Struct("<BI")  # the kind of compression; the masked CRC of the block and the kind
_COUNT = struct.Struct("<I")
_PLAIN, _SNAPPY = 0, 1
_MAX_VARINT_BYTES = 10
_BLOCK_BYTES = 1 << 18  # at which TensorFlow begins another one
_WHOLE_KEYS = 16  # how many keys there are for one that is written as a whole

_Entries = list[tuple[bytes, bytes]]


def read_table(file: FileSource) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a table in the order of the keys, which are all different.

    Raises:
      DataLossError: with file and offset, if it is damaged.
      UnimplementedError: if a block is compressed.
    """
    if not _FOOTER_BYTES <= file.n_bytes <= MAX_TABLE_BYTES:
        raise DataLossError(
            f"{file.path!r} is damaged: expected {_FOOTER_BYTES} to {MAX_TABLE_BYTES} bytes, got "
            f"{file.n_bytes}"
        )
    begin = file.n_bytes - _FOOTER_BYTES
    footer = file.read(begin, _FOOTER_BYTES)
    if not footer.endswith(_MAGIC):
        raise DataLossError(
            f"{file.path!r} is neither a manifest of jflow nor an index of TensorFlow, or is "
            f"damaged: wrong bytes at offset {file.n_bytes - len(_MAGIC)}"
        )
    _, place_of_places = _places(footer, 2, f"{file.path!r}, offset {begin}")
    last: bytes | None = None
    for _, place in _entries(file, *place_of_places):
        (where,) = _places(place, 1, f"{file.path!r}, offset {place_of_places[0]}")
        for key, value in _entries(file, *where):
            if last is not None and key <= last:
                raise DataLossError(
                    f"{file.path!r} is damaged: keys that are not in order at offset {where[0]}"
                )
            last = key
            yield key, value


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number of one to ten bytes, and the offset behind it.

    Each byte has seven bits of it, the first byte the lowest; all but the last one are 128 or more.

    Raises:
      ValueError: if the bytes end before it does, or it is longer.
    """
    value = 0
    for number, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 127) << 7 * number
        if byte < 128:
            return value, at + number + 1
    raise ValueError(f"no number at byte {at}")


def table_of(entries: Mapping[bytes, bytes]) -> bytes:
    """Returns a table with the entries of a mapping whose keys are in order."""
    table, places = bytearray(), _BlockBuilder(1)
    block, last = _BlockBuilder(_WHOLE_KEYS), b""
    for key, value in entries.items():
        if len(block.data) >= _BLOCK_BYTES:
            places.add(last, _appended(table, block))
            block = _BlockBuilder(_WHOLE_KEYS)
        block.add(key, value)
        last = key
    if block.data:
        # No key is after the last block, so a short one that is greater stands for its keys.
        has_greater = last and last[0] < 255
        places.add(bytes((last[0] + 1,)) if has_greater else last, _appended(table, block))
    empty = _appended(table, _BlockBuilder(1))
    footer = empty + _appended(table, places)
    return bytes(table) + footer.ljust(_FOOTER_BYTES - len(_MAGIC), b"\0") + _MAGIC


def varint_of(value: int) -> bytes:
    """Returns a number of at least 0 in the form that `varint` reads."""
    code = bytearray()
    while value >= 128:
        code.append(value & 127 | 128)
        value >>= 7
    code.append(value)
    return bytes(code)


class _BlockBuilder:
    """The content of a block that is written.

    Args:
      n_shared: how many keys there are for one that is written as a whole.

    Attributes:
      data: the entries.
    """

    def __init__(self, n_shared: int) -> None:
        self.data = bytearray()
        self._n_shared = n_shared
        self._n_entries = 0
        self._whole: list[int] = []
        self._last = b""

    def add(self, key: bytes, value: bytes) -> None:
        """Adds an entry behind the others."""
        n_shared = 0
        if self._n_entries % self._n_shared:
            pairs = zip(self._last, key, strict=False)
            n_shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        else:
            self._whole.append(len(self.data))
        for number in (n_shared, len(key) - n_shared, len(value)):
            self.data += varint_of(number)
        self.data += key[n_shared:] + value
        self._last = key
        self._n_entries += 1

    def finished(self) -> bytes:
        """Returns the content with its list of whole keys."""
        whole = self._whole or [0]
        return bytes(self.data) + b"".join(map(_COUNT.pack, [*whole, len(whole)]))


def _appended(table: bytearray, block: _BlockBuilder) -> bytes:
    """Appends a block to a table, and returns its place."""
    content = block.finished()
    place = varint_of(len(table)) + varint_of(len(content))
    table += content + _TRAILER.pack(_PLAIN, masked(checksum(content + bytes((_PLAIN,)))))
    return place


def _places(data: bytes, count: int, where: str) -> list[tuple[int, int]]:
    """Returns offsets and sizes of blocks."""
    places, at = [], 0
    try:
        for _ in range(count):
            offset, at = varint(data, at)
            size, at = varint(data, at)
            places.append((offset, size))
    except ValueError as error:
        raise DataLossError(f"{where}: the file is damaged: {error}") from None
    return places


def _entries(file: FileSource, offset: int, size: int) -> _Entries:
    """Returns the entries of a block."""
    data = _block(file, offset, size)
    try:
        return _parsed(data)
    except ValueError as error:
        raise DataLossError(
            f"{file.path!r} is damaged: block at offset {offset}: {error}"
        ) from None


def _block(file: FileSource, offset: int, size: int) -> bytes:
    """Returns the content of a block, after its checksum."""
    end = offset + size + _TRAILER.size
    if end > file.n_bytes - _FOOTER_BYTES:
        raise DataLossError(
            f"{file.path!r} is damaged: a block at offset {offset} of {size} bytes, in a file of "
            f"{file.n_bytes}"
        )
    stored = file.read(offset, size + _TRAILER.size)
    kind, crc = _TRAILER.unpack_from(stored, size)
    if crc != masked(checksum(stored[: size + 1])):
        raise DataLossError(
            f"{file.path!r} is damaged: wrong CRC of the block at offset {offset} to {end}"
        )
    if kind != _PLAIN:
        raise UnimplementedError(
            f"{file.path!r} has a block at offset {offset} that is compressed"
            f"{' by Snappy' if kind == _SNAPPY else ''}, which jflow does not read; restore the "
            "checkpoint in TensorFlow 1.15 or later and save it again, which does not compress"
        )
    return stored[:size]


def _parsed(data: bytes) -> _Entries:
    """Parses the entries of a block. Raises ValueError if they are malformed."""
    n_whole = _COUNT.unpack_from(data, len(data) - _COUNT.size)[0] if len(data) >= 4 else -1
    end = len(data) - _COUNT.size * (1 + n_whole)
    if n_whole < 0 or end < 0:
        raise ValueError(f"no list of {n_whole} keys in {len(data)} bytes")
    entries: _Entries = []
    key, at, n_key_bytes = b"", 0, 0
    while at < end:
        begin = at
        n_shared, at = varint(data, at)
        n_own, at = varint(data, at)
        n_value, at = varint(data, at)
        n_key_bytes += n_shared + n_own
        if (
            n_shared > len(key)
            or at + n_own + n_value > end
            or n_shared + n_own > _MAX_KEY_BYTES
            or n_key_bytes > _MAX_EXPANSION * len(data)
        ):
            raise ValueError(
                f"no entry at byte {begin}: a key of {n_shared} and {n_own} bytes, a value of "
                f"{n_value}"
            )
        key = key[:n_shared] + data[at : at + n_own]
        at += n_own
        entries.append((key, data[at : at + n_value]))
        at += n_value
    return entries
