"""Records as bytes of a log, each with checksums.

    MAGIC | length u32 | checksum of the length u32 | checksum u32 | kind u8 | record | length ...

The checksum of a record includes that of the record before, so none can be left out, added or
moved. A log may end anywhere, because its program was killed: what follows the last whole record is
left out. Anything else that does not fit is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from jflow.base.packing import Record
from jflow.client.run_log.records import KINDS
from jflow.errors import DataLossError, InvalidArgumentError
from jflow.state.records.crc32c import checksum

MAGIC = b"jflow run log\n"

_HEAD = struct.Struct("<III")
_LENGTH = struct.Struct("<I")
_KIND = {kind: bytes([number]) for number, kind in enumerate(KINDS)}


def encoded(record: Record, before: int) -> tuple[bytes, int]:
    """Returns a record as bytes, and its checksum, given that of the record before; 0 at first."""
    body = _KIND[type(record)] + record.to_bytes_unchecked()
    length = _LENGTH.pack(len(body))
    crc = checksum(_LENGTH.pack(before) + body)
    return _HEAD.pack(len(body), checksum(length), crc) + body, crc


def decoded(data: bytes, path: str) -> Iterator[Record]:
    """Yields the whole records of a log.

    Args:
      data: the bytes of the log.
      path: the file, for messages.

    Raises:
      InvalidArgumentError: if the bytes are not those of a log.
      DataLossError: if they were changed.
    """
    if not data.startswith(MAGIC):
        raise InvalidArgumentError(f"{path} is not a run log: it does not begin with {MAGIC!r}")
    at, before = len(MAGIC), 0
    while at + _HEAD.size <= len(data):
        length, length_sum, body_sum = _HEAD.unpack_from(data, at)
        start = at + _HEAD.size
        if checksum(_LENGTH.pack(length)) != length_sum or not length:
            raise _damaged(path, at)
        if start + length > len(data):
            return
        body = data[start : start + length]
        if checksum(_LENGTH.pack(before) + body) != body_sum or body[0] >= len(KINDS):
            raise _damaged(path, at)
        yield KINDS[body[0]].from_bytes(body[1:])
        at, before = start + length, body_sum


def _damaged(path: str, at: int) -> DataLossError:
    return DataLossError(
        f"the run log {path} is damaged: the record at byte {at} is not the one that was written; "
        "replay another copy of the log, or one that ends before it"
    )
