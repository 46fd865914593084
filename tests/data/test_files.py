"""Files as sources."""

from __future__ import annotations

import pyarrow
import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from jflow import errors
from jflow.base.values import string
from jflow.data import Dataset
from jflow.state.records import TFRecordWriter


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for number, lines in enumerate([["a", "b"], [], ["c"], ["d", "e", "f"]]):
        (folder / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_lines_come_file_by_file_in_order(texts) -> None:
    lines = Dataset.from_files(f"{texts}/*.txt")
    assert list(lines) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    some = Dataset.from_files([texts / "3.txt", texts / "0.txt"])
    assert list(some) == [b"d", b"e", b"f", b"a", b"b"]
    assert list(Dataset.from_files(texts / "2.txt")) == [b"c"]


def test_no_file_is_an_error_at_once(texts) -> None:
    with pytest.raises(errors.NotFoundError, match=r"\*\.csv"):
        Dataset.from_files(f"{texts}/*.csv")


@given(st.integers(0, 12), st.booleans())
def test_a_position_is_within_a_file(texts, count, shuffled) -> None:
    def pipeline() -> Dataset:
        lines = Dataset.from_files(f"{texts}/*.txt")
        return (lines.shuffle(2, seed=4) if shuffled else lines).repeat(2)

    everything = list(pipeline())
    with pipeline().iterator() as first:
        head = [next(first) for _ in range(count)]
        state = first.get_state()
    with pipeline().iterator() as second:
        second.set_state(state)
        assert head + list(second) == everything


def test_other_files_are_another_pipeline(texts) -> None:
    state = Dataset.from_files(f"{texts}/*.txt").iterator().get_state()
    fewer = Dataset.from_files(sorted(texts.glob("*.txt"))[1:]).iterator()
    with pytest.raises(errors.FailedPreconditionError, match="3 files"):
        fewer.set_state(state)


def test_files_are_interleaved_by_their_names(texts) -> None:
    names = Dataset.from_tensor_slices([str(texts / "0.txt"), str(texts / "3.txt")])
    assert list(names.interleave(Dataset.from_files)) == [b"a", b"d", b"b", b"e", b"f"]


def test_records_of_a_fixed_length_and_of_tensorflow(tmp_path) -> None:
    fixed = tmp_path / "digits.bin"
    fixed.write_bytes(b"headaabbcc")
    dataset = Dataset.from_files(fixed, "fixed", record_bytes=2, header_bytes=4)
    assert list(dataset) == [b"aa", b"bb", b"cc"]
    records = tmp_path / "digits.tfrecord"
    with TFRecordWriter(records) as writer:
        writer.write(b"one\0")
        writer.write(b"")
    assert list(Dataset.from_files(records, "tfrecord")) == [b"one\0", b""]
    assert Dataset.from_files(records, "tfrecord").element_spec.dtype == string


def test_array_records_are_shuffled_in_full(tmp_path) -> None:
    path = tmp_path / "digits.array_record"
    writer = ArrayRecordWriter(str(path), "group_size:1")
    values = [bytes([i]) for i in range(40)]
    for value in values:
        writer.write(value)
    writer.close()
    dataset = Dataset.from_files(path, "array_record")
    assert list(dataset) == values
    shuffled = list(dataset.shuffle(seed=1))
    assert shuffled != values
    assert sorted(shuffled) == values


def test_rows_of_parquet_are_examples(tmp_path) -> None:
    path = tmp_path / "digits.parquet"
    parquet.write_table(pyarrow.table({"label": [3, 1, 2]}), path)
    dataset = Dataset.from_files(path, "parquet")
    with dataset.iterator() as iterator:
        next(iterator)
        state = iterator.get_state()
    with dataset.iterator() as iterator:
        iterator.set_state(state)
        assert list(iterator) == list(dataset)[1:]
    assert all(b"label" in row for row in dataset)
