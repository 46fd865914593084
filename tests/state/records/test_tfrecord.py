import subprocess
import sys
import tracemalloc
import zlib
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from jflow.state.records import TFRecordWriter, open_records
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.crc32c import (
    checksum,
    checksum_by_numpy,
    extended,
    extended_by_numpy,
    masked,
)

ANYWHERE = AllowedDirectories.anywhere()
COMPRESSIONS = ("", "GZIP", "ZLIB")

# Written by TensorFlow 2.21: the records b"", b"x" and b"xx".
BY_TENSORFLOW = bytes.fromhex(
    "000000000000000029039807d8ea82a201000000000000000175de4178503daa61020000000000000078270b347878b23be17a"
)


def _open(path, position=None, **options):
    return open_records("TFRecordReader", str(path).encode(), options, ANYWHERE, position)


def _write(path, records, compression=""):
    with TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
    return path


def _all(source):
    """Keys and values until the end or an error."""
    pairs = []
    try:
        while pair := source.read():
            pairs.append(pair)
    except DataLossError as error:
        pairs.append(error)
    source.close()
    return pairs


def test_a_file_of_tensorflow_is_read_and_written_alike(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(BY_TENSORFLOW)
    name = str(path).encode()
    expected = [(name + b":0", b""), (name + b":16", b"x"), (name + b":33", b"xx")]
    assert _all(_open(path)) == expected
    assert _write(tmp_path / "ours", [b"", b"x", b"xx"]).read_bytes() == BY_TENSORFLOW


@given(
    records=st.lists(st.binary(max_size=300), max_size=20),
    compression=st.sampled_from(COMPRESSIONS),
    n=st.integers(1, 7),
)
def test_what_was_written_is_read(tmp_path_factory, records, compression, n):
    path = _write(tmp_path_factory.mktemp("t") / "f", records, compression)
    pairs = _all(_open(path, compression=compression))
    assert [value for _, value in pairs] == records
    source, batches = _open(path, compression=compression), []
    while (batch := source.read_up_to(n))[0]:
        batches.append(batch)
    source.close()
    assert all(len(keys) == len(values) == n for keys, values in batches[:-1])
    assert [p for keys, values in batches for p in zip(keys, values, strict=True)] == pairs


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_reading_goes_on_at_a_position(tmp_path, compression):
    records = [bytes([i]) * 100_000 for i in range(12)]
    path = _write(tmp_path / "t", records, compression)
    pairs = _all(_open(path, compression=compression))
    source = _open(path, compression=compression)
    positions = [source.position]
    while source.read():
        positions.append(source.position)
    source.close()
    for i, position in enumerate(positions):
        assert _all(_open(path, position, compression=compression)) == pairs[i:]


def test_every_flipped_bit_is_found(tmp_path):
    path = _write(tmp_path / "t", [b"", b"one", b"two and more"])
    good, name = path.read_bytes(), str(path)
    expected = _all(_open(path))
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        *before, error = _all(_open(path))
        assert isinstance(error, DataLossError), bit
        assert before == expected[: len(before)]
        start = int(expected[len(before)][0].rpartition(b":")[2])
        assert name in str(error)
        assert f"offset {start} " in str(error)
        assert start <= bit // 8


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_file_cut_off_anywhere_is_found(tmp_path, compression):
    path = _write(tmp_path / "t", [b"", b"one", b"two and more"], compression)
    good = path.read_bytes()
    expected = _all(_open(path, compression=compression))
    ends = {0, 16, 35} if compression == "" else {0}
    for length in range(len(good)):
        path.write_bytes(good[:length])
        pairs = _all(_open(path, compression=compression))
        if length in ends:
            assert pairs == expected[: len(pairs)]
        else:
            *before, error = pairs
            assert isinstance(error, DataLossError), length
            assert before == expected[: len(before)]
            assert str(path) in str(error)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_that_were_flushed_can_be_read_while_the_file_is_open(tmp_path, compression):
    path = tmp_path / "t"
    with TFRecordWriter(path, compression) as writer:
        writer.write(bytearray(b"one"))
        writer.flush()
        source = _open(path, compression=compression)
        assert source.read()[1] == b"one"
        source.close()
        writer.write(memoryview(b"two"))
    assert [value for _, value in _all(_open(path, compression=compression))] == [b"one", b"two"]


def test_a_writer_whose_process_ends_leaves_whole_records_or_a_damaged_compression(tmp_path):
    program = """
import os, sys
from jflow.state.records import TFRecordWriter
writers = [TFRecordWriter(sys.argv[1] + kind, kind) for kind in ("", "GZIP", "ZLIB")]
for writer in writers:
    for number in range(3):
        writer.write(b"%d" % number)
    writer.flush()
    writer.write(os.urandom(1 << 20))
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "t")], check=True)
    whole = [value for _, value in _all(_open(tmp_path / "t"))]
    assert whole[:3] == [b"0", b"1", b"2"]
    assert [len(value) for value in whole[3:]] == [1 << 20]
    for compression in COMPRESSIONS[1:]:
        *before, error = _all(_open(tmp_path / f"t{compression}", compression=compression))
        assert [value for _, value in before] == [b"0", b"1", b"2"]
        assert isinstance(error, DataLossError)
        assert f"t{compression} is damaged" in str(error)


def test_what_is_no_record_or_comes_after_the_end_is_refused(tmp_path):
    with TFRecordWriter(tmp_path / "t") as writer:
        for record in ("text", {"x": 1}, None, 3):
            with pytest.raises(InvalidArgumentError, match=r"is bytes, got .*encode_example"):
                writer.write(record)
        writer.write(b"one")
    for late in (lambda: writer.write(b"two"), writer.flush):
        with pytest.raises(FailedPreconditionError, match=r"the writer of '.*t' is closed"):
            late()
    writer.close()
    assert [value for _, value in _all(_open(tmp_path / "t"))] == [b"one"]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_a_flipped_bit_in_a_compressed_file_gives_no_wrong_record(tmp_path, compression):
    path = _write(tmp_path / "t", [b"one" * 20, b"two and more"], compression)
    good, harmless = path.read_bytes(), 0
    expected = _all(_open(path, compression=compression))
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        pairs = _all(_open(path, compression=compression))
        # Some bits mean nothing, such as a gzip file's time and those after the last block.
        if pairs == expected:
            harmless += 1
        else:
            assert isinstance(pairs.pop(), DataLossError), bit
            assert pairs == expected[: len(pairs)]
    assert harmless < (80 if compression == "GZIP" else 8)


@given(data=st.binary(max_size=200), compression=st.sampled_from(COMPRESSIONS))
def test_any_bytes_are_refused_without_a_crash(tmp_path_factory, data, compression):
    path = tmp_path_factory.mktemp("t") / "f"
    path.write_bytes(data)
    pairs = _all(_open(path, compression=compression))
    assert not data or isinstance(pairs[-1], DataLossError) or compression


def _with_length(length):
    head = length.to_bytes(8, "little")
    return head + masked(checksum(head)).to_bytes(4, "little") + b"data" * 8


def test_a_length_that_the_file_cannot_have_takes_no_memory(tmp_path):
    path = tmp_path / "t"
    for length in (1 << 40, (1 << 64) - 1):
        data = _with_length(length)
        # How much is in a compressed file is not known, but it is more than is allowed.
        for compression, content, error in (
            ("", data, DataLossError),
            ("ZLIB", zlib.compress(data), ResourceExhaustedError),
        ):
            path.write_bytes(content)
            source = _open(path, compression=compression)
            tracemalloc.start()
            with pytest.raises(error, match="offset 0"):
                source.read()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 5e6
            source.close()


def test_records_before_the_damaged_one_come_first_and_the_error_again_and_again(tmp_path):
    path = _write(tmp_path / "t", [b"one", b"two", b"three"])
    path.write_bytes(path.read_bytes()[:-1])
    source = _open(path)
    assert source.read_up_to(10)[1] == [b"one", b"two"]
    for _ in range(2):
        with pytest.raises(DataLossError):
            source.read_up_to(10)
    with pytest.raises(DataLossError):
        source.read()
    assert source.position == 38
    source.close()


def test_a_record_that_is_too_long_is_refused(tmp_path):
    path = _write(tmp_path / "t", [b"x" * 1_000_000])
    with (
        closing(_open(path, max_record_bytes=999_999)) as source,
        pytest.raises(ResourceExhaustedError, match="max_record_bytes=999999"),
    ):
        source.read()
    assert _all(_open(path, max_record_bytes=1_000_000))[0][1] == b"x" * 1_000_000


def test_gzip_files_may_be_put_together(tmp_path):
    one = _write(tmp_path / "1", [b"a"], "GZIP").read_bytes()
    two = _write(tmp_path / "2", [b"b"], "GZIP").read_bytes()
    (tmp_path / "3").write_bytes(one + two)
    assert [v for _, v in _all(_open(tmp_path / "3", compression="GZIP"))] == [b"a", b"b"]


def test_what_was_flushed_can_be_read_before_the_end(tmp_path):
    with TFRecordWriter(tmp_path / "t") as writer:
        writer.write(b"early")
        writer.flush()
        assert [v for _, v in _all(_open(tmp_path / "t"))] == [b"early"]


def test_bad_options_and_positions_are_refused(tmp_path):
    path = _write(tmp_path / "t", [b"a"])
    with pytest.raises(InvalidArgumentError, match="SNAPPY"):
        _open(path, compression="SNAPPY")
    with pytest.raises(InvalidArgumentError, match="SNAPPY"):
        TFRecordWriter(path, "SNAPPY")
    with pytest.raises(InvalidArgumentError, match="depth"):
        _open(path, depth=1)
    with pytest.raises(InvalidArgumentError, match="TFRecords"):
        open_records("TFRecords", b"x", {}, ANYWHERE)
    for position in (-1, "0", 1.5, [0], True):
        with pytest.raises(InvalidArgumentError, match="position"):
            _open(path, position)
    with pytest.raises(DataLossError, match="17 bytes; cannot continue at offset 99"):
        _open(path, 99)
    with closing(_open(path)) as source, pytest.raises(InvalidArgumentError, match="positive"):
        source.read_up_to(0)
    assert len(path.read_bytes()) == 17


@given(st.binary(max_size=5000))
def test_the_checksum_is_the_same_with_and_without_the_package(data):
    assert checksum_by_numpy(data) == checksum(data)
    for n in (0, 1, len(data) // 2, len(data)):
        assert extended_by_numpy(checksum(data[:n]), data[n:]) == checksum(data)
        assert extended(checksum(data[:n]), data[n:]) == checksum(data)


def test_the_checksum_is_crc32c():
    assert checksum_by_numpy(b"123456789") == 0xE3069283
    assert checksum_by_numpy(bytes(32)) == 0x8A9136AA
