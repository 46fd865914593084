"""`LogWriter`: writes a run log, and its values into a file beside it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from jflow.base.files import naming_file
from jflow.base.packing import Record
from jflow.base.values import Array, raw_bytes, type_name
from jflow.client.run_log.frames import MAGIC, encoded
from jflow.client.run_log.records import LogEnd, LogStep, LogValue
from jflow.client.run_log.value_file import ValueFile, are_equal
from jflow.errors import AlreadyExistsError, ResourceExhaustedError
from jflow.state.records.crc32c import checksum

_SMALL_BYTES = 256
"""Values up to this size are in the log itself."""

_N_KNOWN = 1 << 16
"""How many small values are known by their bytes; then they are written again."""


class LogFullError(ResourceExhaustedError):
    """The log has reached its limit."""


def data_path(path: str) -> str:
    """Returns the path of the file with the values of a log."""
    return f"{path}.data"


class LogWriter:
    """Writes a run log. Equal values are written once.

    Args:
      path: the file; another one with its values is beside it.
      limit_bytes: the largest size of both files together.

    Attributes:
      n_steps: how many steps are in the log.
      is_limited: whether the limit holds.

    Raises:
      AlreadyExistsError: if the file exists.
      OSError: if it cannot be made; nothing is left of it.
    """

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            self._log = os.open(path, flags, 0o600)
        except FileExistsError:
            raise AlreadyExistsError(
                f"the run log {path} exists; record under another name, or delete it and "
                f"{data_path(path)}"
            ) from None
        self._path, self._n_bytes = path, 0
        try:
            self._append(MAGIC)
            self._data = ValueFile(data_path(path))
        except OSError:
            os.close(self._log)
            os.unlink(path)
            raise
        self._n_values = self._before = self.n_steps = 0
        self._small: dict[Any, int] = {}
        self._large: defaultdict[Any, list[tuple[int, Array]]] = defaultdict(list)
        self._pending: list[Record] = []
        self.is_limited = True

    def values(self, arrays: Iterable[Array]) -> tuple[int, ...]:
        """Returns the numbers of values, which are written with the next record."""
        return tuple(map(self._number_of, arrays))

    def add(self, record: Record) -> None:
        """Takes a record that is written with the next one, or by `flush`."""
        self._pending.append(record)

    def write(self, record: Record) -> None:
        """Writes a record, after what is not written yet; it is in the system's cache on return.

        Raises:
          LogFullError: if the log would exceed its limit; nothing of it is written then.
          OSError: if it cannot be written; then nothing of it is in the file.
        """
        self._write((*self._pending, record))
        self._pending = []
        self.n_steps += isinstance(record, LogStep)

    def _write(self, records: Iterable[Record]) -> None:
        frames, before = [], self._before
        for one in records:
            frame, before = encoded(one, before)
            frames.append(frame)
        data = b"".join(frames)
        self._check(len(data))
        self._append(data)
        self._before = before

    def _append(self, data: bytes) -> None:
        """Appends bytes to the log: all of them, or none."""
        view = memoryview(data)
        try:
            with naming_file(self._path):
                while view.nbytes:
                    view = view[os.write(self._log, view) :]
        except OSError:
            # What follows a part of a record would be taken for damage.
            os.ftruncate(self._log, self._n_bytes)
            raise
        self._n_bytes += len(data)

    def flush(self) -> None:
        """Writes what is not written yet. Raises as `write`."""
        if self._pending:
            self._write(self._pending)
            self._pending = []

    def end(self, reason: str = "", unread: Iterable[str] = ()) -> None:
        """Writes that the log is whole, or what it lacks; for the arguments see `LogEnd`."""
        self.is_limited = False
        end = LogEnd(reason, tuple(unread))
        with suppress(OSError):
            self._data.trim()
            try:
                self.write(end)
            except OSError:
                self._write((end,))  # for which the values had room in reserve

    def close(self) -> None:
        """Closes the files."""
        os.close(self._log)
        self._data.close()

    def _number_of(self, array: Array) -> int:
        data, dtype = raw_bytes(array), type_name(array)
        if len(data) <= _SMALL_BYTES:
            return self._small_value(dtype, array.shape, data.tobytes())
        crc = checksum(data)
        alike = self._large[dtype, array.shape, crc]
        for number, written in alike:
            if are_equal(written, data):
                return number
        self._check(len(data))
        offset, written = self._data.append(data)
        number = self._add_value(LogValue(dtype, array.shape, len(data), crc, offset))
        alike.append((number, written))
        return number

    def _small_value(self, dtype: str, shape: tuple[int, ...], data: bytes) -> int:
        key = dtype, shape, data
        number = self._small.get(key)
        if number is None:
            if len(self._small) >= _N_KNOWN:
                self._small.clear()
            value = LogValue(dtype, shape, len(data), checksum(data), data=data)
            number = self._small[key] = self._add_value(value)
        return number

    def _add_value(self, value: LogValue) -> int:
        self._pending.append(value)
        self._n_values += 1
        return self._n_values - 1

    def _check(self, n_bytes: int) -> None:
        if self.is_limited and self._n_bytes + self._data.n_bytes + n_bytes > self._limit_bytes:
            raise LogFullError(
                f"the run log has reached its limit of {self._limit_bytes} bytes; raise "
                "ConfigProto.record_limit_bytes"
            )
