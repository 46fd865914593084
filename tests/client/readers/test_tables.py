"""Lookup tables whose entries are lines of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf
from tests.client.readers.helpers import lines
from tests.clusters import Backend

WHOLE, NUMBER = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER


def words(path: str, default: Any = -1, **options: Any) -> tf.lookup.StaticHashTable:
    """A table of the words of a file, by default each with the number of its line."""
    arguments: dict[str, Any] = {
        "key_dtype": tf.string,
        "key_index": WHOLE,
        "value_dtype": tf.int64,
        "value_index": NUMBER,
        **options,
    }
    return tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(path, **arguments), default)


def columns(path: str, value: int, dtype: Any, default: Any, **options: Any) -> Any:
    """A table of the first column of a file, with the values of another one."""
    options = {"key_index": 0, "value_index": value, "value_dtype": dtype, **options}
    return words(path, default, **options)


TEXT = ("emerson\t10\t1.5", "lake\t 20\t2.5")


@pytest.mark.parametrize(
    ("make", "keys", "values"),
    [
        (words, ["lake\t 20\t2.5", "lake"], [1, -1]),
        (lambda path: words(path, value_index_offset=5), [TEXT[0], TEXT[1]], [5, 6]),
        (lambda path: words(path, vocab_size=1), [TEXT[0], TEXT[1]], [0, -1]),
        (lambda path: columns(path, 1, tf.int64, -1), ["lake", "x"], [20, -1]),
        (lambda path: columns(path, 1, tf.int32, -1, value_index_offset=5), ["lake"], [20]),
        (lambda path: columns(path, 2, tf.float32, -1.0), ["lake", "x"], [2.5, -1]),
        (lambda path: columns(path, 1, tf.string, "?"), ["lake", "x"], [b" 20", b"?"]),
        (lambda path: columns(path, 1, tf.int32, 0, delimiter="r"), ["eme"], None),
        (
            lambda path: columns(path, 0, tf.string, "?", key_index=1, key_dtype=tf.int64),
            [20, 21],
            [b"lake", b"?"],
        ),
        (
            lambda path: words(
                path,
                "?",
                key_dtype=tf.int64,
                key_index=NUMBER,
                value_dtype=tf.string,
                value_index=WHOLE,
                value_index_offset=5,
            ),
            [1, 6],
            [b"?", b"lake\t 20\t2.5"],
        ),
    ],
)
def test_columns_of_a_file_are_keys_and_values(
    backend: Backend, directory: Path, make: Any, keys: Any, values: Any
) -> None:
    """The values are those of TensorFlow 2.21."""
    table = make(lines(directory, "text", *TEXT))
    with backend.session() as sess:
        if values is None:
            with pytest.raises(tf.errors.InvalidArgumentError, match="number of columns in line 1"):
                sess.run(table.initializer)
        else:
            sess.run(table.initializer)
            assert sess.run(table.lookup(keys)).tolist() == values


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("x\n\ny\n", {}, tf.errors.InvalidArgumentError, r"line 1 \(from 0\) is empty"),
        ("x\ny\n\n", {}, tf.errors.InvalidArgumentError, r"line 2 \(from 0\) is empty"),
        ("", {}, tf.errors.InvalidArgumentError, "it has no lines"),
        ("x\ny\nx\n", {}, tf.errors.FailedPreconditionError, r"Key b'x' has 0 and .* value 2"),
        ("x\n", {"vocab_size": 9}, tf.errors.InvalidArgumentError, "expected 9 but got 1"),
        ("x\n", {"delimiter": "::"}, tf.errors.InvalidArgumentError, "only 1 char"),
        (
            "x\t5\ny\tz\n",
            {"value_index": 1},
            tf.errors.InvalidArgumentError,
            "Field z in line 1 is not a valid int64",
        ),
        (None, {}, tf.errors.NotFoundError, "text"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused(
    backend: Backend,
    directory: Path,
    text: str | None,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    path = directory / "text"
    if text is not None:
        path.write_text(text)
    table = words(str(path), **options)
    with backend.session() as sess:
        with pytest.raises(error, match=message):
            sess.run(table.initializer)
        assert sess.run(table.size()) == 0


def test_lines_may_end_as_on_windows_and_the_last_one_not_at_all(
    backend: Backend, directory: Path
) -> None:
    (directory / "text").write_bytes(b"x\r\ny")
    table = words(str(directory / "text"))
    with backend.session() as sess:
        sess.run(table.initializer)
        assert sess.run(table.lookup(["x", "y", "x\r"])).tolist() == [0, 1, -1]


def test_the_name_of_a_file_may_be_the_value_of_a_tensor(backend: Backend, directory: Path) -> None:
    name = tf.placeholder(tf.string, ())
    table = words(name)
    assert tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS) == [name]
    with backend.session() as sess:
        sess.run(table.initializer, {name: lines(directory, "text", "x", "y")})
        assert sess.run(table.lookup(["y"])) == [1]


def test_index_tables_of_files_go_both_ways(backend: Backend, directory: Path) -> None:
    """The values are those of TensorFlow 2.21."""
    path = lines(directory, "text", "emerson", "lake", "palmer")
    table = tf.contrib.lookup.index_table_from_file(path, num_oov_buckets=3)
    back = tf.contrib.lookup.index_to_string_table_from_file(path, default_value="what")
    numbers = tf.contrib.lookup.index_table_from_file(
        lines(directory, "numbers", *TEXT), key_column_index=0, value_column_index=1
    )
    with backend.session() as sess:
        sess.run(tf.tables_initializer())
        assert sess.run(table.lookup(["palmer", "u", "v"])).tolist() == [2, 5, 3]
        assert sess.run(back.lookup([2, 9])).tolist() == [b"palmer", b"what"]
        assert sess.run(numbers.lookup(["lake", "a"])).tolist() == [20, -1]
        assert sess.run([table.size(), back.size(), numbers.size()]) == [6, 3, 2]


def test_sessions_share_the_table_of_a_file_which_is_read_once(
    cluster: Backend, directory: Path
) -> None:
    path = lines(directory, "text", "x", "y")
    table, same, other = words(path), words(path), words(path, vocab_size=1)
    with cluster.session() as sess:
        sess.run(table.initializer)
        assert sess.run([same.lookup(["y"]), other.size()]) == [1, 0]
    (directory / "text").unlink()
    with cluster.session(1) as sess:
        sess.run(table.initializer)
        assert sess.run([table.size(), table.lookup(["y"])]) == [2, 1]


def test_a_server_reads_vocabularies_below_its_roots_only(
    cluster: Backend, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = words(lines(tmp_path_factory.mktemp("other"), "text", "x"))
    with cluster.session() as sess, pytest.raises(tf.errors.PermissionDeniedError, match="text"):
        sess.run(table.initializer)


def test_arguments_that_do_not_fit_are_refused_when_the_graph_is_built() -> None:
    make = tf.lookup.TextFileInitializer
    with pytest.raises(ValueError, match="`filename` argument required"):
        words("")
    with pytest.raises(ValueError, match="`vocabulary_file` must be specified"):
        tf.contrib.lookup.index_table_from_file("")
    with pytest.raises(ValueError, match="`vocab_size` should be > 0, received: 0"):
        words("x", vocab_size=0)
    with pytest.raises(ValueError, match="`key_index` should be >= -2, received: -3"):
        words("x", key_index=-3)
    with pytest.raises(ValueError, match="`value_dtype` must be int64 for `value_index` -1"):
        words("x", value_dtype=tf.int32)
    with pytest.raises(TypeError, match="strings or integers, got float32"):
        make("x", tf.float32, WHOLE, tf.int64, NUMBER)
    with pytest.raises(TypeError, match="name of a file as text"):
        make(tf.constant(["x"]), tf.string, WHOLE, tf.int64, NUMBER)
    with pytest.raises(TypeError, match="`keys` should be either integer or string"):
        tf.contrib.lookup.index_table_from_file("x", key_dtype=np.float32)
