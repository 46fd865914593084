"""Reads a shard, checking every byte against its checksum before it is used."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jflow.errors import DataLossError, InvalidArgumentError
from jflow.state.checkpoint_files.layout import BLOCK_BYTES, ShardRecord, ShardTable, TensorEntry
from jflow.state.checkpoint_files.prefix import CheckpointPrefix
from jflow.state.checkpoint_files.regions import ReadBytes
from jflow.state.records.crc32c import checksum


class ShardReader:
    """A shard open for reading.

    Args:
      prefix: the checkpoint.
      record: the shard, as the manifest names it.

    Attributes:
      table: what is in it.

    Raises:
      DataLossError: if it is missing, damaged or has another size.
    """

    def __init__(self, prefix: CheckpointPrefix, record: ShardRecord) -> None:
        self._file = prefix.open(prefix.file(record.file))
        try:
            self._open(record)
        except BaseException:
            self.close()
            raise

    def _open(self, record: ShardRecord) -> None:
        file = self._file
        if file.n_bytes != record.n_bytes:
            raise DataLossError(
                f"{file.path!r} is damaged: expected {record.n_bytes} bytes, got {file.n_bytes}"
            )
        begin = record.n_bytes - record.n_table - record.n_sums
        head = file.read(0, record.n_head)
        table = file.read(begin, record.n_table)
        sums = file.read(begin + record.n_table, record.n_sums)
        if checksum(head + table + sums) != record.crc:
            raise DataLossError(
                f"{file.path!r} is damaged: wrong CRC of the header, offset 0 to {record.n_head}, "
                f"or the table, offset {begin} to {record.n_bytes}"
            )
        try:
            self.table = ShardTable.from_bytes(table)
        except InvalidArgumentError as error:
            raise DataLossError(
                f"{file.path!r} cannot be read: at offset {begin}: {error.message}"
            ) from None
        self._begin = record.n_head
        self._sums = np.frombuffer(sums, "<u4")
        self._check_table(begin - record.n_head)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def reader(self, entry: TensorEntry, key: str) -> ReadBytes:
        """Returns a function that reads the bytes of an entry.

        Args:
          entry: the entry.
          key: the tensor or state, for messages.
        """
        return _EntryReader(self, entry, key).read

    def read_block(self, number: int, entry: TensorEntry, key: str, data: memoryview) -> None:
        """Reads a whole block of an entry. Raises DataLossError if its checksum is wrong."""
        offset = self._begin + entry.offset + number * self.table.block_bytes
        self._file.read_into(offset, data)
        if checksum(np.frombuffer(data, np.uint8)) != self._sums[entry.first_sum + number]:
            raise DataLossError(
                f"{self._file.path!r} is damaged: wrong CRC of {key!r}, offset {offset} to "
                f"{offset + len(data)}"
            )

    def entries(self) -> Iterator[tuple[str, TensorEntry]]:
        """Yields all entries with the key of the tensor or state that each belongs to."""
        for entry in self.table.entries:
            yield entry.key, entry
        for state in self.table.states:
            for entry in state.arrays:
                yield state.key, entry

    def verify(self) -> None:
        """Reads everything. Raises DataLossError if anything is damaged."""
        scratch = memoryview(bytearray(BLOCK_BYTES))
        for key, entry in self.entries():
            read = self.reader(entry, key)
            for begin in range(0, entry.n_bytes, BLOCK_BYTES):
                read(begin, scratch[: min(BLOCK_BYTES, entry.n_bytes - begin)])

    def _check_table(self, n_data: int) -> None:
        """Raises DataLossError unless the entries cover the data without gaps or overlaps."""
        entries = sorted((entry for _, entry in self.entries()), key=lambda one: one.offset)
        offset = n_blocks = 0
        for entry in entries:
            if entry.n_bytes and (entry.offset, entry.first_sum) != (offset, n_blocks):
                raise self._malformed(entry.key)
            offset += entry.n_bytes
            n_blocks += -(-entry.n_bytes // self.table.block_bytes)
        if offset != n_data or n_blocks != len(self._sums):
            raise self._malformed("its end")

    def _malformed(self, where: str) -> DataLossError:
        return DataLossError(
            f"{self._file.path!r} cannot be read: its table does not match its data at {where!r}"
        )


class _EntryReader:
    """Reads ranges of the bytes of an entry, block by block.

    A block that is wanted as a whole is read to where it is wanted; the last other one is kept.
    """

    def __init__(self, shard: ShardReader, entry: TensorEntry, key: str) -> None:
        self._shard, self._entry, self._key = shard, entry, key
        self._block: tuple[int, memoryview] = (-1, memoryview(b""))

    def read(self, offset: int, data: memoryview) -> None:
        """Fills a buffer from an offset on. Raises DataLossError if a checksum is wrong."""
        end = offset + len(data)
        shard, size = self._shard, self._shard.table.block_bytes
        for number in range(offset // size, -(-end // size)):
            first, last = number * size, min((number + 1) * size, self._entry.n_bytes)
            if offset <= first and last <= end:
                wanted = data[first - offset : last - offset]
                shard.read_block(number, self._entry, self._key, wanted)
                continue
            if self._block[0] != number:
                block = memoryview(bytearray(last - first))
                shard.read_block(number, self._entry, self._key, block)
                self._block = number, block
            low, high = max(first, offset), min(last, end)
            data[low - offset : high - offset] = self._block[1][low - first : high - first]
