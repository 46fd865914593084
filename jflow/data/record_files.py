"""`tf_record_iterator`: the records of a file, read in the user's process."""

from __future__ import annotations

import os
from collections.abc import Iterator

from jflow.state.records import TFRecordOptions, compression_of, open_records
from jflow.state.records.allowed_directories import AllowedDirectories


def tf_record_iterator(
    path: str | os.PathLike[str], options: TFRecordOptions | str | None = None
) -> Iterator[bytes]:
    """Yields the records of a TFRecord file.

    Args:
      path: path of the file.
      options: its compression.

    Raises:
      NotFoundError: if there is no such file.
      DataLossError: if it is damaged, after the records before.
    """
    name = os.fspath(path).encode()
    given = {"compression": compression_of(options)}
    records = open_records("TFRecordReader", name, given, AllowedDirectories.anywhere())
    try:
        while (record := records.read()) is not None:
            yield record[1]
    finally:
        records.close()
