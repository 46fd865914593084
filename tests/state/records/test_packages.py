"""Files that are read with optional packages."""

import sys
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from pyarrow import parquet

from jflow.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnimplementedError,
)
from jflow.state.records import DECODERS, FixedLenFeature, VarLenFeature, as_columns, open_records
from jflow.state.records.allowed_directories import AllowedDirectories
from tests.state.records.arrays import strings

ARRAY, PARQUET = "ArrayRecordReader", "ParquetReader"


def _open(kind, path, position=None, **options):
    return open_records(kind, str(path).encode(), options, AllowedDirectories.anywhere(), position)


def _all(source):
    pairs = []
    with closing(source):
        while pair := source.read():
            pairs.append(pair)
    return pairs


def _array_file(path, records):
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()
    return path


@pytest.fixture(params=[ARRAY, PARQUET])
def some(request, tmp_path):
    """A kind and a file of it with ten records."""
    path = tmp_path / "file"
    if request.param == ARRAY:
        _array_file(path, [b"%d" % i * i for i in range(10)])
    else:
        parquet.write_table(pa.table({"x": list(range(10))}), path, row_group_size=4)
    return request.param, path


def test_records_have_their_index_as_key(some):
    kind, path = some
    keys = [key for key, _ in _all(_open(kind, path))]
    assert keys == [b"%b:%d" % (str(path).encode(), i) for i in range(10)]


@pytest.mark.parametrize("block", [1, 3, 100])
def test_reading_goes_on_at_a_position(some, block):
    kind, path = some
    expected = _all(_open(kind, path))
    for position in range(11):
        assert _all(_open(kind, path, position, block_records=block)) == expected[position:]
    with closing(_open(kind, path, block_records=block)) as source:
        keys, values = source.read_up_to(7)
        assert list(zip(keys, values, strict=True)) == expected[:7]
        assert source.position == 7
        assert source.read_up_to(7)[0] == [key for key, _ in expected[7:]]
        assert source.read_up_to(7) == ([], [])
    with pytest.raises(DataLossError, match="has only 10 records"):
        _open(kind, path, 11)
    with pytest.raises(InvalidArgumentError, match="position"):
        _open(kind, path, -1)


def test_a_file_cut_off_is_refused(some):
    kind, path = some
    data = path.read_bytes()
    for length in (0, 10, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(DataLossError, match=str(path)):
            _all(_open(kind, path))


def test_roots_hold(some, tmp_path):
    kind, path = some
    with pytest.raises(PermissionDeniedError):
        open_records(kind, str(path).encode(), {}, AllowedDirectories([]))
    assert len(_all(open_records(kind, b"file", {}, AllowedDirectories([str(tmp_path)])))) == 10
    with pytest.raises(NotFoundError):
        _open(kind, tmp_path / "missing")


def test_without_the_package_the_error_says_what_to_install(some, monkeypatch):
    kind, path = some
    module = "array_record.python.array_record_module" if kind == ARRAY else "pyarrow.parquet"
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnimplementedError, match=rf"{kind}.*pip install 'jflow\[data\]'"):
        _open(kind, path)


def test_array_records_come_back(tmp_path):
    records = [b"", b"a", bytes(range(256)) * 100]
    path = _array_file(tmp_path / "f", records)
    assert [value for _, value in _all(_open(ARRAY, path))] == records
    assert _all(_open(ARRAY, _array_file(tmp_path / "empty", []))) == []


def test_damage_in_array_records_is_found(tmp_path):
    path = _array_file(tmp_path / "f", [bytes(1000)] * 100)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataLossError, match=r"records 0 to 99 of .*damaged"):
        _all(_open(ARRAY, path))


def _parse(records, features):
    defaults, columns = as_columns(features)
    return DECODERS["parse_example"](strings(*records), *defaults, columns=columns)


def test_rows_of_parquet_are_examples(tmp_path):
    path = tmp_path / "f"
    table = pa.table(
        {
            "i": pa.array([1, -2, None], pa.int16()),
            "f": pa.array([0.5, 1.5, 2.5], pa.float64()),
            "b": pa.array([True, False, True]),
            "t": pa.array(["a", "ä", ""]),
            "l": pa.array([[1, 2], [], None], pa.list_(pa.int32())),
            "v": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2)),
            "r": pa.array([b"\xff", b"", None]),
        }
    )
    parquet.write_table(table, path)
    records = [value for _, value in _all(_open(PARQUET, path))]
    features = {
        "i": FixedLenFeature([], "int64", -1),
        "f": FixedLenFeature([], "float32"),
        "b": FixedLenFeature([], "int64"),
        "t": FixedLenFeature([], "string"),
        "v": FixedLenFeature([2], "float32"),
        "r": FixedLenFeature([], "string", "none"),
        "l": VarLenFeature("int64"),
    }
    *arrays, indices, values, shape = _parse(records, features)
    expected = [
        [1, -2, -1],
        [0.5, 1.5, 2.5],
        [1, 0, 1],
        [b"a", "ä".encode(), b""],
        [[1, 2], [3, 4], [5, 6]],
        [b"\xff", b"", b"none"],
    ]
    assert [array.tolist() for array in arrays] == expected
    assert (indices.tolist(), values.tolist(), shape.tolist()) == ([[0, 0], [0, 1]], [1, 2], [3, 2])


def test_columns_of_parquet_can_be_chosen(tmp_path):
    path = tmp_path / "f"
    dates = pa.array(np.array(["2020-01-01"] * 2, "datetime64[s]"))
    parquet.write_table(pa.table({"x": [1, 2], "when": dates, "y": [3, 4]}), path)
    with pytest.raises(InvalidArgumentError, match=r"column 'when' .*timestamp.*columns"):
        _open(PARQUET, path)
    with pytest.raises(InvalidArgumentError, match="no column 'z'"):
        _open(PARQUET, path, columns=["z"])
    records = [value for _, value in _all(_open(PARQUET, path, columns=["y"]))]
    features = {"y": FixedLenFeature([], "int64"), "x": FixedLenFeature([], "int64", -1)}
    assert [array.tolist() for array in _parse(records, features)] == [[3, 4], [-1, -1]]


def test_a_value_that_no_example_holds_is_refused(tmp_path):
    path = tmp_path / "f"
    parquet.write_table(pa.table({"x": pa.array([1 << 63], pa.uint64())}), path)
    with (
        closing(_open(PARQUET, path)) as source,
        pytest.raises(InvalidArgumentError, match="feature 'x'"),
    ):
        source.read()
