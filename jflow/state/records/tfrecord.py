"""Reader and writer of TFRecord files, in which each record has a length and two checksums.

    u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data

All numbers are little-endian; the whole file may be compressed.
"""

from __future__ import annotations

import os
import struct
import zlib
from functools import lru_cache
from typing import Any

import numpy as np

from jflow.base.handles import Closing
from jflow.base.values import Array
from jflow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.appended_file import AppendedFile
from jflow.state.records.crc32c import checksum, masked, masked_array
from jflow.state.records.reader import MAX_RECORD_BYTES, Records, count_of, text_of
from jflow.state.records.stream import COMPRESSIONS, WINDOW_BITS, ByteStream

_LENGTH = struct.Struct("<Q")
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_AROUND_BYTES = _HEADER.size + _CHECKSUM.size
_MIN_ALIKE = 8
"""Fewer records are read one by one."""


class TFRecords(Records):
    """Reads the records of a TFRecord file; keys are `file:offset`.

    The offset is that of the record's header, in decompressed bytes.

    Args:
      name: name of the file.
      roots: the directories that may be read.
      position: offset of the first record to read.
      compression: "", "GZIP" or "ZLIB".
      max_record_bytes: maximum length of a record in bytes.
    """

    def __init__(
        self,
        name: bytes,
        roots: AllowedDirectories,
        position: Any = None,
        *,
        compression: str = "",
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self._name = name
        self._max = count_of(max_record_bytes, name, "max_record_bytes", 1)
        start = count_of(0 if position is None else position, name, "position")
        self._stream = ByteStream(name, roots, compression, start)

    @property
    def position(self) -> int:
        """The offset of the next record."""
        return self._stream.offset

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()

    def _append_to(self, keys: list[bytes], values: list[bytes], n: int) -> None:
        while len(values) < n:
            if not self._append_one(keys, values):
                return
            self._append_alike(keys, values, n - len(values))

    def _append_one(self, keys: list[bytes], values: list[bytes]) -> bool:
        """Appends the next record; returns False at the end."""
        stream, name = self._stream, self._name
        if len(stream.data) - stream.at < _HEADER.size:
            have = stream.fill(_HEADER.size)
            if have == 0:
                return False
            if have < _HEADER.size:
                raise self._data_loss(f"the file ends {have} bytes into the header")
        begin = stream.at + _HEADER.size
        length = _length_of(stream.data[stream.at : begin])
        if length is None:
            raise self._data_loss("the checksum of its length is wrong")
        if len(stream.data) < begin + length + _CHECKSUM.size:
            self._fill(length)
            begin = stream.at + _HEADER.size
        data, end = stream.data, begin + length
        value = data[begin:end]
        if masked(checksum(value)) != _CHECKSUM.unpack_from(data, end)[0]:
            raise self._data_loss("the checksum of its data is wrong")
        keys.append(b"%b:%d" % (name, stream.offset))
        values.append(value)
        stream.at = end + _CHECKSUM.size
        return True

    def _append_alike(self, keys: list[bytes], values: list[bytes], n: int) -> None:
        """Appends the next records that are undamaged and of the same length as the last, if many.

        What all of them have in common is done once: many files have records of one length.
        """
        data, at, length = self._stream.data, self._stream.at, len(values[-1])
        stride = length + _AROUND_BYTES
        count = min((len(data) - at) // stride, n)
        header = data[at - stride : at - stride + _HEADER.size]
        if count < _MIN_ALIKE or not data.startswith(header, at + (_MIN_ALIKE - 1) * stride):
            return
        records = np.frombuffer(data, _record_type(length), count, at)
        count = _n_first(records["header"] == np.void(header))
        records_alike = records["data"][:count].tolist()
        checksums = np.fromiter(map(checksum, records_alike), np.uint32, count)
        count = _n_first(masked_array(checksums) == records["checksum"][:count])
        start, name = self._stream.offset, self._name
        keys += [b"%b:%d" % (name, i) for i in range(start, start + count * stride, stride)]
        values += records_alike[:count]
        self._stream.at += count * stride

    def _fill(self, length: int) -> None:
        """Buffers a record of this length; raises if it is incomplete or too long."""
        n_needed = length + _AROUND_BYTES
        left = self._stream.left()
        if left is None or left >= n_needed:
            if length > self._max:
                raise ResourceExhaustedError(
                    f"the record at offset {self.position} of {text_of(self._name)} has {length} "
                    f"bytes, more than max_record_bytes={self._max}"
                )
            left = self._stream.fill(n_needed)
        if left < n_needed:
            raise self._data_loss(f"it requires {n_needed} bytes, but only {left} are left")

    def _data_loss(self, reason: str) -> DataLossError:
        return DataLossError(
            f"the record at offset {self.position} of {text_of(self._name)} is damaged or "
            f"truncated: {reason}"
        )


def _n_first(holds: Array) -> int:
    """Returns the number of leading true values in bool[n]."""
    return len(holds) if holds.all() else int(holds.argmin())


def _record_type(length: int) -> np.dtype[np.void]:
    """Returns the structured dtype of a record with this many bytes of data."""
    fields = [("header", f"V{_HEADER.size}"), ("data", f"V{length}"), ("checksum", "<u4")]
    return np.dtype(fields)


@lru_cache(maxsize=4096)
def _length_of(header: bytes) -> int | None:
    """Returns the length in a header; None if its checksum is wrong.

    It is cached because the records of a file often have few different lengths.
    """
    length, length_checksum = _HEADER.unpack(header)
    return length if masked(checksum(header[: _LENGTH.size])) == length_checksum else None


class TFRecordCompressionType:
    """The numbers of compressions."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


class TFRecordOptions:
    """Options of record files.

    Args:
      compression_type: a number of `TFRecordCompressionType`, or "", "ZLIB" or "GZIP".
    """

    def __init__(self, compression_type: int | str | None = None) -> None:
        names = ("", "ZLIB", "GZIP")
        self.compression_type: str = (
            names[compression_type] if isinstance(compression_type, int) else compression_type or ""
        )

    def __repr__(self) -> str:
        return f"<jflow.python_io.TFRecordOptions compression_type={self.compression_type!r}>"


def compression_of(options: TFRecordOptions | str | None) -> str:
    """Returns the compression that options of record files name; "" for none."""
    return options.compression_type if isinstance(options, TFRecordOptions) else options or ""


class TFRecordWriter(Closing):
    """Writes records to a new TFRecord file; as a context manager, closes it.

    A record is written as a whole or not at all: on a full disk a call raises, and later ones go on
    once there is room. If a process ends before `close`, the file contains the records that were
    flushed. A reader returns those that are complete, and then raises DataLossError if the file
    ends within a record or, if compressed, before the end of the data.

    Args:
      path: path of the file, which is replaced if it exists.
      options: `TFRecordOptions`, or a compression: "", "GZIP" or "ZLIB".
      compression: the compression, by its own name.

    Raises:
      InvalidArgumentError: if there is no such compression.
      OSError: if the file cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: TFRecordOptions | str | None = None,
        *,
        compression: str = "",
    ) -> None:
        compression = compression or compression_of(options)
        if compression not in COMPRESSIONS:
            raise InvalidArgumentError(
                f"expected one of {COMPRESSIONS} as compression, got {compression!r}"
            )
        bits = WINDOW_BITS.get(compression)
        self._compress = None if bits is None else zlib.compressobj(wbits=bits)
        self._file = AppendedFile(path)
        self._is_complete = False

    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Appends a record.

        Raises:
          InvalidArgumentError: if it is not bytes.
          FailedPreconditionError: if the file is closed.
          ResourceExhaustedError: if the disk is full; then nothing of the record is written.
        """
        if not isinstance(record, bytes | bytearray | memoryview):
            raise InvalidArgumentError(
                f"a record of a TFRecord file is bytes, got {type(record).__name__}: "
                f"{record!r:.80}; encode_example makes bytes from a dictionary of arrays"
            )
        self._check_open()
        self._file.make_room()
        data = framed(bytes(record))
        self._file.append(data if self._compress is None else self._compress.compress(data))

    def flush(self) -> None:
        """Flushes the records written so far to the operating system.

        Raises:
          FailedPreconditionError: if the file is closed.
          ResourceExhaustedError: if the disk is full; another call goes on where this one ended.
        """
        self._check_open()
        if self._compress is not None:
            self._file.append(self._compress.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self) -> None:
        """Completes and closes the file.

        Raises:
          ResourceExhaustedError: if the disk is full; another call goes on where this one ended.
        """
        if self._compress is not None and not self._is_complete:
            self._file.append(self._compress.flush())
        self._is_complete = True
        self._file.close()

    def _check_open(self) -> None:
        if self._is_complete:
            raise FailedPreconditionError(f"the writer of {self._file.path!r} is closed")

    def _leave(self, failed: bool) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed " if self._file.is_closed else ""
        return f"<TFRecordWriter {state}{self._file.path!r}>"


def framed(record: bytes) -> bytes:
    """Returns a record as it stands in a file, with its length and checksums."""
    length = _LENGTH.pack(len(record))
    head = length + _CHECKSUM.pack(masked(checksum(length)))
    return b"".join((head, record, _CHECKSUM.pack(masked(checksum(record)))))
