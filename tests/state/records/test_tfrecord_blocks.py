"""TFRecord files read in blocks: what records one by one give, also where records are alike."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.errors import DataLossError, OpError
from jflow.state.records import TFRecordWriter, open_records
from jflow.state.records.allowed_directories import AllowedDirectories

AROUND_BYTES = 16
Pairs = list[tuple[bytes, bytes]]


def opened(path: Path, position: Any = None) -> Any:
    roots = AllowedDirectories.anywhere()
    return open_records("TFRecordReader", str(path).encode(), {}, roots, position)


def written(path: Path, records: Sequence[bytes], compression: str = "") -> Path:
    with TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
    return path


def pairs_of(path: Path, n: int) -> tuple[Pairs, str]:
    """All records in blocks of `n`, checking positions, and the error at the end if any."""
    pairs: Pairs = []
    with closing(opened(path)) as source:
        while True:
            try:
                keys, values = source.read_up_to(n)
            except OpError as error:
                return pairs, str(error)
            if not keys:
                return pairs, ""
            assert len(keys) <= n
            pairs += zip(keys, values, strict=True)
            ends = sum(len(value) + AROUND_BYTES for _, value in pairs)
            assert source.position == ends


# Few lengths, so that there are runs of every number of records that are alike.
RUNS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=6)


@given(RUNS, st.integers(1, 40))
def test_blocks_have_the_records_and_keys_of_records_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, runs: Any, n: int
) -> None:
    path = tmp_path_factory.mktemp("runs") / "file"
    records = [bytes([i % 256]) * length for length, count in runs for i in range(count)]
    written(path, records)
    starts = accumulate((len(record) + AROUND_BYTES for record in records), initial=0)
    keys = [f"{path}:{start}".encode() for start in starts][: len(records)]
    assert pairs_of(path, n) == ([*zip(keys, records, strict=True)], "")


@pytest.mark.parametrize("part", ["length", "checksum of the length", "data", "checksum"])
@pytest.mark.parametrize("damaged", [0, 1, 12, 29])
def test_records_before_a_damaged_one_among_alike_ones_come_first(
    tmp_path: Path, damaged: int, part: str
) -> None:
    records = [bytes([i]) * 20 for i in range(30)]
    path = written(tmp_path / "file", records)
    at = {"length": 0, "checksum of the length": 9, "data": 25, "checksum": 33}[part]
    data = bytearray(path.read_bytes())
    data[damaged * (20 + AROUND_BYTES) + at] ^= 4
    path.write_bytes(data)
    pairs, error = pairs_of(path, 64)
    assert [value for _, value in pairs] == records[:damaged]
    offset = damaged * (20 + AROUND_BYTES)
    assert f"the record at offset {offset} of {path} is damaged" in error
    assert pairs_of(path, 1) == (pairs, error)


def test_alike_records_in_a_compressed_file_are_read(tmp_path: Path) -> None:
    records = [bytes([i]) * 100 for i in range(200)]
    path = written(tmp_path / "file", records, "GZIP")
    options, roots = {"compression": "GZIP"}, AllowedDirectories.anywhere()
    with closing(open_records("TFRecordReader", str(path).encode(), options, roots)) as source:
        assert source.read_up_to(500)[1] == records


def test_alike_records_that_are_cut_off_end_with_the_error(tmp_path: Path) -> None:
    path = written(tmp_path / "file", [b"x" * 20] * 30)
    path.write_bytes(path.read_bytes()[:-1])
    with closing(opened(path)) as source:
        assert len(source.read_up_to(64)[0]) == 29
        with pytest.raises(DataLossError, match="only 35 are left"):
            source.read_up_to(64)


def test_alike_records_beyond_one_buffer_are_all_read(tmp_path: Path) -> None:
    records = [i.to_bytes(4, "big") * 250 for i in range(2000)]  # 2 MB, several buffers
    path = written(tmp_path / "file", records)
    assert [value for _, value in pairs_of(path, 256)[0]] == records
