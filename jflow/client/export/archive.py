"""Archives of exported graphs: uncompressed ZIP files, read within strict limits.

An archive has the entry `document` (MessagePack, see `document.py`), `arrays/0`, `arrays/1` … (raw
little-endian bytes) and `programs/0` … (StableHLO, as `jax.export` serializes it). Nothing is
compressed, so nothing that is read is larger than the file. ZIP keeps a CRC of each entry.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jflow.base.files import replacing
from jflow.base.values import NUMBERS, Array, raw_bytes, read_strings, string
from jflow.client.export.document import ArrayEntry, Document
from jflow.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)

_DOCUMENT = "document"
_DAMAGED = (
    *(zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError),
    *(OSError, OverflowError, ValueError, struct.error),
)
"""The errors that `zipfile` raises for damaged files, whose offsets it trusts."""
_DATE = (1980, 1, 1, 0, 0, 0)  # equal graphs give equal files


@dataclass(frozen=True)
class Archive:
    """The contents of an archive.

    Attributes:
      document: the tables.
      arrays: arrays in their physical form, in the order of `document.arrays`.
      programs: serialized `jax.export.Exported`s.
    """

    document: Document
    arrays: Sequence[Array]
    programs: Sequence[bytes]


def write_archive(path: str, archive: Archive) -> None:
    """Writes an archive atomically: if writing fails, no file is left.

    Raises:
      InvalidArgumentError: if the document exceeds the limits of the format.
      OSError: as `open`.
    """
    document = archive.document.to_bytes()
    with (
        replacing(path, mode=0o600) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as zip_file,
    ):
        zip_file.writestr(_entry(_DOCUMENT), document)
        for number, array in enumerate(archive.arrays):
            with zip_file.open(_entry(f"arrays/{number}"), "w", force_zip64=True) as to:
                to.write(raw_bytes(array).data)
        for number, program in enumerate(archive.programs):
            zip_file.writestr(_entry(f"programs/{number}"), program)


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, _DATE)


def read_archive(path: str) -> Archive:
    """Reads an archive that `write_archive` wrote.

    Raises:
      NotFoundError: if there is no such file.
      InvalidArgumentError: if it is not an archive, or its content is malformed.
      DataLossError: if a part of it is damaged or missing.
      PermissionDeniedError: if it cannot be read.
    """
    if not os.path.isfile(path):
        raise NotFoundError(f"{path!r}: expected a file of an exported graph, found none")
    try:
        file = open(path, "rb")  # noqa: SIM115 - its errors are not those of its content
    except OSError as error:
        raise PermissionDeniedError(f"{path!r} cannot be read: {error.strerror}") from None
    with file:
        try:
            zip_file = zipfile.ZipFile(file)
        except _DAMAGED as error:
            raise InvalidArgumentError(
                f"{path!r}: expected a graph or function that jflow.export wrote (a ZIP archive), "
                f"got another or an incomplete file: {error}"
            ) from None
        with zip_file:
            return _read(path, zip_file)


def _read(path: str, packed: zipfile.ZipFile) -> Archive:
    entries = {entry.filename: entry for entry in packed.infolist()}
    if len(entries) < len(packed.infolist()):
        raise InvalidArgumentError(f"{path!r}: expected entries of different names, got equal ones")
    for entry in entries.values():
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise InvalidArgumentError(
                f"{path!r}: expected entries without compression or encryption, got "
                f"{entry.filename!r:.80} with it"
            )
    if _DOCUMENT not in entries:
        raise InvalidArgumentError(
            f"{path!r}: expected an archive of jflow.export, with the entry {_DOCUMENT!r}; got "
            f"one with {', '.join(map(repr, [*entries][:5])) or 'no entries'}"
        )
    document = Document.from_bytes(_bytes(path, packed, entries[_DOCUMENT]))
    names = [f"arrays/{number}" for number in range(len(document.arrays))]
    programs = [f"programs/{number}" for number in range(document.n_programs)]
    missing_names = [name for name in (*names, *programs) if name not in entries]
    if missing_names or len(entries) != 1 + len(names) + len(programs):
        raise DataLossError(
            f"{path!r}: expected {len(names)} arrays and {len(programs)} programs, got "
            + (
                f"none named {missing_names[0]!r}"
                if missing_names
                else f"{len(entries) - 1} entries"
            )
        )
    arrays = [
        _array(path, name, _bytes(path, packed, entries[name]), entry)
        for name, entry in zip(names, document.arrays, strict=True)
    ]
    return Archive(document, arrays, [_bytes(path, packed, entries[name]) for name in programs])


def _bytes(path: str, packed: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    where = f"{path!r}: the entry {entry.filename!r:.80} at byte {entry.header_offset}"
    if entry.file_size != entry.compress_size or entry.file_size > os.path.getsize(path):
        raise InvalidArgumentError(f"{where} announces {entry.file_size} bytes, more than it has")
    try:
        return packed.read(entry)
    except _DAMAGED as error:
        raise DataLossError(f"{where} is damaged: {error}") from None


def _array(path: str, name: str, data: bytes, entry: ArrayEntry) -> Array:
    count = int(np.prod(entry.shape, dtype=object))
    elements = np.frombuffer(data, np.uint8)
    where = f"{path!r}: the entry {name!r}"
    if entry.dtype == string.name:
        try:
            strings, end = read_strings(elements, count)
        except ValueError as error:
            raise InvalidArgumentError(f"{where} is malformed: {error}") from None
        if end != len(data):
            raise InvalidArgumentError(f"{where} has {len(data)} bytes, expected {end}")
        return strings.reshape(entry.shape)
    dtype = NUMBERS.get(entry.dtype)
    if dtype is None:
        raise InvalidArgumentError(f"{where} has the dtype {entry.dtype!r:.80}, which is unknown")
    if count * dtype.itemsize != len(data):
        raise InvalidArgumentError(
            f"{where} has {len(data)} bytes, expected {count * dtype.itemsize} for "
            f"{entry.dtype} {entry.shape}"
        )
    array = elements.view(dtype).reshape(entry.shape)
    array.flags.writeable = False
    return array
