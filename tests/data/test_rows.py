"""CSV and Parquet rows as dictionaries of arrays."""

from __future__ import annotations

import csv
import io
from functools import partial

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import jflow as tf
from jflow import errors
from jflow.data import Dataset, TensorSpec
from jflow.state.records import CsvBlocks, csv_file
from jflow.state.records.allowed_directories import AllowedDirectories

PEOPLE = "name,age,height\nada,36,1.7\nalan,,1.8\n"


@pytest.fixture
def write(tmp_path):
    """Writes a file of that name and content, and gives its path."""

    def write_(text, name="people.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_


def failure(dataset) -> str:
    with pytest.raises(errors.InvalidArgumentError) as raised:
        list(dataset)
    return str(raised.value)


class TestCsv:
    def test_the_first_line_names_the_columns_and_the_defaults_their_dtypes(self, write) -> None:
        path = write(PEOPLE)
        typed = Dataset.from_csv(path, record_defaults={"age": np.int64(-1), "height": tf.float32})
        rows = list(typed)
        assert rows == [
            {"name": b"ada", "age": 36, "height": np.float32(1.7)},
            {"name": b"alan", "age": -1, "height": np.float32(1.8)},
        ]
        assert [*rows[0]] == ["name", "age", "height"]
        assert [type(value) for value in rows[0].values()] == [bytes, np.int64, np.float32]
        assert typed.element_spec == {
            "age": TensorSpec((), "int64"),
            "height": TensorSpec((), "float32"),
            "name": TensorSpec((), "string"),
        }

    @pytest.mark.parametrize(
        ("dtype", "value"),
        [
            (tf.int64, np.int64(7)),
            (np.dtype(np.uint64), np.uint64(7)),
            (float, np.float64(7)),
            (int, np.int64(7)),
            (tf.bfloat16, ml_dtypes.bfloat16(7)),
            (tf.string, b"7"),
            (str, b"7"),
            (bytes, b"7"),
            (0, np.int32(7)),
            (0.0, np.float32(7)),
            ("", b"7"),
            (np.zeros(1), np.float64(7)),
        ],
        ids=str,
    )
    def test_a_default_says_the_dtype(self, write, dtype, value) -> None:
        path = write("a,b\n7,1\n")
        (row,) = Dataset.from_csv(path, record_defaults={"a": dtype})
        assert (row["a"], type(row["a"])) == (value, type(value))

    def test_without_defaults_every_column_is_bytes(self, write) -> None:
        rows = list(Dataset.from_csv(write(PEOPLE)))
        assert rows[1] == {"name": b"alan", "age": b"", "height": b"1.8"}

    def test_columns_can_be_named_and_chosen(self, write) -> None:
        path = write("# of 1950\n" + PEOPLE)
        names = ["who", "years", "metres"]
        rows = Dataset.from_csv(
            path,
            column_names=names,
            columns=["metres", "who"],
            record_defaults=[tf.float64, ""],
            skip_header_lines=2,
        )
        assert list(rows) == [{"who": b"ada", "metres": 1.7}, {"who": b"alan", "metres": 1.8}]
        without_header = Dataset.from_csv(write("ada,1\n"), column_names=["name", "n"])
        assert list(without_header) == [{"name": b"ada", "n": b"1"}]

    def test_other_ways_to_write_csv(self, write) -> None:
        path = write(b"\xef\xbb\xbfa;b\r\n1;'x'\r\n\r\n \r\nNA;\r\n")
        rows = Dataset.from_csv(
            path,
            columns=["a"],
            record_defaults={"a": 0},
            field_delim=";",
            use_quote_delim=False,
            na_value="NA",
        )
        assert failure(rows) == f"Expect 2 fields but have 1 in line 4 of {path}: b' '"
        path.write_bytes(path.read_bytes().replace(b" \r\n", b""))
        assert list(rows) == [{"a": np.int32(1)}, {"a": np.int32(0)}]

    def test_wide_integers_and_floats_keep_their_64_bits_in_batches(self, write) -> None:
        path = write("n,x\n9007199254740993,0.1\n-9007199254740993,0.2\n")
        rows = Dataset.from_csv(path, record_defaults=[tf.int64, tf.float64])
        (batch,) = rows.batch(2)
        assert (batch["n"].dtype, batch["x"].dtype) == (np.int64, np.float64)
        assert batch["n"].tolist() == [2**53 + 1, -(2**53) - 1]
        assert batch["x"].tolist() == [0.1, 0.2]

    @given(
        st.lists(
            st.tuples(st.integers(-(2**63), 2**63 - 1), st.text('ab",\n;ä', max_size=5)),
            max_size=9,
        ),
        st.integers(0, 10),
        st.integers(1, 4),
    )
    def test_what_python_writes_is_read_and_continued_from_any_position(
        self, tmp_path_factory, rows, count, block
    ) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("n", "text"), *rows])
        path = tmp_path_factory.mktemp("csv") / "f"
        path.write_text(text.getvalue())
        expected = [{"n": n, "text": text.encode()} for n, text in rows]
        dataset = Dataset.from_csv(path, record_defaults={"n": tf.int64})
        with dataset.iterator() as first:
            head = [next(first) for _ in range(min(count, len(rows)))]
            state = first.get_state()
        with dataset.iterator() as second:
            second.set_state(state)
            assert head + list(second) == expected
        blocks = CsvBlocks(
            str(path).encode(), AllowedDirectories.anywhere(), record_defaults={}, block_rows=block
        )
        texts = []
        while found := blocks.read():
            texts += found["text"].tolist()
        blocks.close()
        assert texts == [row["text"] for row in expected]

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ("x,1", "Column 'a' in line 3 of {} is not a valid int32: x"),
            ("1,", "Column 'b' is required but missing in line 3 of {}!"),
            ("1", "Expect 2 fields but have 1 in line 3 of {}: b'1'"),
            ("1,2,3", "Expect 2 fields but have 3 in line 3 of {}: b'1,2,3'"),
            ('1,2"x', "line 3 of {}: Unquoted fields cannot have quotes/CRLFs inside: b'1,2\"x'"),
            ('1,"2', "line 3 of {}: Quoted field has to end with quote followed by delim or end"),
            ("99999999999,1", "Column 'a' in line 3 of {} is not a valid int32: 99999999999"),
        ],
    )
    def test_a_bad_row_is_named_by_file_line_and_column_after_those_before_it(
        self, write, bad, message
    ) -> None:
        path = write(f"a,b\n1,2\n{bad}\n3,4\n5,x\n")
        rows = Dataset.from_csv(path, record_defaults={"a": tf.int32, "b": tf.int32})
        with rows.iterator() as iterator:
            assert next(iterator) == {"a": 1, "b": 2}
            for _ in range(2):
                with pytest.raises(errors.InvalidArgumentError) as raised:
                    next(iterator)
                assert message.format(path) in str(raised.value)

    def test_the_first_of_several_bad_rows_is_named(self, write) -> None:
        path = write("a,b\n" + "1,2\n" * 300 + "1,x\n" + "x,1\n")
        rows = Dataset.from_csv(path, record_defaults=[0, 0])
        with rows.iterator() as iterator:
            assert [next(iterator)["b"] for _ in range(300)] == [2] * 300
            with pytest.raises(errors.InvalidArgumentError, match=r"'b' in line 302 of .*: x"):
                next(iterator)

    def test_a_quote_that_is_never_closed_does_not_read_a_large_file_whole(
        self, write, monkeypatch
    ) -> None:
        monkeypatch.setattr(csv_file, "_MAX_RECORD_BYTES", 1000)
        path = write('a,b\n1,"2\n' + "1,2\n" * 1000)
        message = failure(Dataset.from_csv(path))
        assert "line 2 of" in message
        assert "Quoted field has to end" in message

    @pytest.mark.parametrize(
        ("text", "options", "message"),
        [
            ("", {}, "is empty; its first line must name the columns"),
            ("a,a\n", {}, "several columns of one name"),
            (b"\xff,a\n", {}, "line 1 of .*, which names the columns, is not UTF-8"),
            ('a"b\n', {}, "line 1 of .*: Unquoted fields"),
            ("a,b\n", {"columns": ["c"]}, r"has no column 'c'; its columns are \['a', 'b'\]"),
            ("a,b\n", {"record_defaults": {"c": 0}}, "has no column 'c'"),
            (
                "a,b\n",
                {"record_defaults": [0]},
                r"record_defaults has 1 .* 2 are to be read",
            ),
            ("a,b\n", {"field_delim": "ab"}, "field_delim must be one byte"),
            ("a\n", {"skip_header_lines": -1}, "skip_header_lines"),
        ],
    )
    def test_what_cannot_be_read_is_refused(self, write, text, options, message) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            list(Dataset.from_csv(write(text), **options))

    def test_columns_of_several_files_are_told_by_their_names(self, write, tmp_path) -> None:
        first = write("a,b\n1,2\n", "0.csv")
        write("b,a\n4,3\n", "1.csv")
        rows = list(Dataset.from_csv(tmp_path / "*.csv"))
        assert rows == [{"a": b"1", "b": b"2"}, {"a": b"3", "b": b"4"}]
        third = write("a,c\n1,2\n", "2.csv")
        dataset = Dataset.from_csv(tmp_path / "*.csv")
        assert failure(dataset) == (
            f"{third} has the columns ['a', 'c'], but the first file, {first}, has ['a', 'b']; "
            "select common columns with columns="
        )
        common = Dataset.from_csv(tmp_path / "*.csv", columns=["a"])
        assert [row["a"] for row in common] == [b"1", b"3", b"1"]

    def test_files_are_interleaved(self, write) -> None:
        names = [str(write(f"n\n{i}\n{i + 10}\n", f"{i}.csv")) for i in range(2)]
        rows = Dataset.from_tensor_slices(names).interleave(
            partial(Dataset.from_csv, record_defaults=[0])
        )
        assert [int(row["n"]) for row in rows] == [0, 1, 10, 11]

    def test_other_options_are_another_pipeline(self, write) -> None:
        path = write(PEOPLE)
        state = Dataset.from_csv(path).iterator().get_state()
        for options in ({"record_defaults": {"age": 0}}, {"columns": ["age"]}, {"na_value": "x"}):
            with pytest.raises(errors.FailedPreconditionError, match="another pipeline"):
                Dataset.from_csv(path, **options).iterator().set_state(state)

    def test_a_default_that_is_none_is_refused_when_it_is_given(self, write) -> None:
        with pytest.raises(TypeError):
            Dataset.from_csv(write(PEOPLE), record_defaults={"age": object()})


class TestParquet:
    def rows(self, tmp_path, table, **options) -> list:
        path = tmp_path / "f.parquet"
        parquet.write_table(pa.table(table), path, row_group_size=2)
        return list(Dataset.from_parquet(path, **options))

    def test_columns_keep_their_dtypes(self, tmp_path) -> None:
        moment = np.datetime64("2020-01-02T03:04:05", "us")
        columns = {
            "i": pa.array([1, -2, 3], pa.int16()),
            "w": pa.array([2**62, 0, 1], pa.int64()),
            "u": pa.array([2**64 - 1, 0, 1], pa.uint64()),
            "f": pa.array([0.5, 1.5, 2.5], pa.float64()),
            "h": pa.array(np.float16([0.5, 1.5, 2.5])),
            "b": pa.array([True, False, True]),
            "t": pa.array(["a", "ä", ""]),
            "r": pa.array([b"\xff\0", b"", b"x"], pa.large_binary()),
            "c": pa.array(["x", "y", "x"]).dictionary_encode(),
            "when": pa.array(np.array([moment] * 3)),
        }
        rows = self.rows(tmp_path, columns)
        assert [row["w"] for row in rows] == [2**62, 0, 1]
        first = rows[0]
        assert [*first] == [*columns]
        kinds = (np.int16, np.int64, np.uint64, np.float64, np.float16, np.bool_)
        assert tuple(type(first[name]) for name in "iwufhb") == kinds
        assert [row["t"] for row in rows] == [b"a", "ä".encode(), b""]
        assert [row["r"] for row in rows] == [b"\xff\0", b"", b"x"]
        assert [row["c"] for row in rows] == [b"x", b"y", b"x"]
        assert first["when"] == moment

    def test_lists_are_arrays(self, tmp_path) -> None:
        columns = {
            "l": pa.array([[1, 2], [], [3]], pa.list_(pa.int64())),
            "s": pa.array([["a"], ["b", "c"], []], pa.large_list(pa.string())),
            "v": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2)),
        }
        rows = self.rows(tmp_path, columns)
        assert [row["l"].tolist() for row in rows] == [[1, 2], [], [3]]
        assert [row["s"].tolist() for row in rows] == [[b"a"], [b"b", b"c"], []]
        assert [row["v"].tolist() for row in rows] == [[1, 2], [3, 4], [5, 6]]
        assert rows[0]["l"].dtype == np.int64
        dataset = Dataset.from_parquet(tmp_path / "f.parquet")
        assert dataset.element_spec == {
            "l": TensorSpec((None,), "int64"),
            "s": TensorSpec((None,), "string"),
            "v": TensorSpec((2,), "float32"),
        }
        (batch,) = Dataset.from_parquet(tmp_path / "f.parquet", columns=["l", "v"]).padded_batch(3)
        assert batch["l"].tolist() == [[1, 2], [0, 0], [3, 0]]

    def test_null_has_the_default_or_is_named_by_file_row_and_column(self, tmp_path) -> None:
        columns = {"x": [1, None, 3], "t": ["a", "b", None]}
        defaults = {"x": -1, "t": "none"}
        rows = self.rows(tmp_path, columns, record_defaults=defaults)
        assert [row["x"] for row in rows] == [1, -1, 3]
        assert rows[2]["t"] == b"none"
        path = tmp_path / "f.parquet"
        with Dataset.from_parquet(path).iterator() as iterator:
            assert next(iterator)["x"] == 1
            for _ in range(2):
                with pytest.raises(
                    errors.InvalidArgumentError,
                    match=rf"'x' in row 1 of {path} is null; pass .* as rec",
                ):
                    next(iterator)
        with pytest.raises(
            errors.InvalidArgumentError, match=r"'x': expected a value of type int64.*'none'"
        ):
            list(Dataset.from_parquet(path, record_defaults={"x": "none", "t": ""}))

    def test_columns_are_chosen_and_others_refused(self, tmp_path) -> None:
        table = {"x": [1, 2], "s": pa.array([{"a": 1}, {"a": 2}])}
        assert self.rows(tmp_path, table, columns=["x"]) == [{"x": 1}, {"x": 2}]
        path = tmp_path / "f.parquet"
        assert "column 's' of" in failure(Dataset.from_parquet(path))
        assert "no column 'z'" in failure(Dataset.from_parquet(path, columns=["z"]))
        some = Dataset.from_parquet(path, columns=["x"], record_defaults={"s": 0})
        assert "no column 's' among those" in failure(some)

    @given(st.integers(0, 8))
    def test_reading_continues_from_any_position(self, tmp_path_factory, count) -> None:
        path = tmp_path_factory.mktemp("p") / "f"
        parquet.write_table(pa.table({"x": list(range(8))}), path, row_group_size=3)
        dataset = Dataset.from_parquet([path, path]).repeat(2)
        with dataset.iterator() as first:
            head = [next(first) for _ in range(count)]
            state = first.get_state()
        with dataset.iterator() as second:
            second.set_state(state)
            assert [int(row["x"]) for row in head + list(second)] == [*range(8)] * 4

    def test_what_is_no_parquet_file_is_refused(self, write) -> None:
        with pytest.raises(errors.DataLossError, match=r"people\.csv is not a Parquet file"):
            list(Dataset.from_parquet(write(PEOPLE)))
