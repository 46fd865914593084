"""Decoders inside the functions of a dataset, and as plain functions."""

from __future__ import annotations

import numpy as np
import pytest

import jflow as tf
from jflow import errors
from jflow.data import Dataset, TFRecordWriter

FEATURES = {
    "label": tf.FixedLenFeature([], tf.int64),
    "x": tf.FixedLenFeature([2], tf.float32),
    "name": tf.FixedLenFeature([], tf.string, "none"),
    "tags": tf.VarLenFeature(tf.string),
}
LARGE = 2**40

RECORDS = [
    tf.data.encode_example({"label": LARGE + i, "x": [float(i), 0.5], "tags": ["a"] * i})
    for i in range(4)
]


def parsed(record):
    """The features of an Example that have the same shape in each."""
    features = tf.parse_single_example(record, FEATURES)
    return {key: features[key] for key in ("label", "x", "name")}


@pytest.fixture
def graph():
    """A graph in which nothing is built."""
    with tf.Graph().as_default() as graph:
        yield graph
        assert graph.is_empty


@pytest.mark.parametrize("threads", [None, 2])
def test_examples_are_parsed_by_a_function_of_a_dataset(graph, threads) -> None:
    rows = list(Dataset.from_tensor_slices(RECORDS).map(parsed, threads))
    assert [row["label"] for row in rows] == [LARGE, LARGE + 1, LARGE + 2, LARGE + 3]
    assert [type(rows[0][key]) for key in ("label", "x", "name")] == [np.int64, np.ndarray, bytes]
    assert rows[3]["x"].tolist() == [3.0, 0.5]
    assert rows[0]["name"] == b"none"


def test_integers_of_64_bits_are_batched_before_and_after_parsing(graph) -> None:
    records = Dataset.from_tensor_slices(RECORDS)
    (one,) = records.map(parsed).batch(4)
    (other,) = records.batch(4).map(lambda batch: tf.parse_example(batch, FEATURES))
    for batch in (one, other):
        assert batch["label"].dtype == np.int64
        assert batch["label"].tolist() == [LARGE, LARGE + 1, LARGE + 2, LARGE + 3]
        assert batch["x"].shape == (4, 2)
        assert batch["name"].tolist() == [b"none"] * 4
    tags = other["tags"]
    assert isinstance(tags, tf.SparseTensor)
    assert tags.dense_shape.tolist() == [4, 3]
    assert len(tags.values) == 6


def test_what_is_written_comes_back(graph, tmp_path) -> None:
    path = tmp_path / "digits.tfrecord"
    with TFRecordWriter(path, "GZIP") as writer:
        for record in RECORDS:
            writer.write(record)
    rows = Dataset.from_files(path, "tfrecord", compression="GZIP").map(parsed)
    assert [int(row["label"]) - LARGE for row in rows] == [0, 1, 2, 3]


def test_the_whole_family_gives_arrays_in_a_function_of_a_dataset(graph) -> None:
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)

    def decode(line):
        number, text = tf.decode_csv(line, [tf.int64, ""])
        split = tf.string_split(np.array([text], object), " ")
        decoded = {
            "csv": number,
            "joined": tf.string_join([text, "!"], "-"),
            "stripped": tf.string_strip(" a "),
            "part": tf.substr(text, 0, 1),
            "text": tf.as_string(number),
            "number": tf.string_to_number("0.1", tf.float64),
            "raw": tf.decode_raw(b"\1\0\2\0", tf.int16),
            "cast": tf.cast(number, tf.float32),
            "wide": tf.cast(np.float32(2.5), tf.int64),
            "image": tf.decode_png(tf.encode_png(image)),
            "jpeg": tf.decode_image(tf.encode_jpeg(image)).shape,
            "parts": split.values,
        }
        assert tf.decode_jpeg(tf.encode_jpeg(image)).dtype == np.uint8
        return decoded

    (row,) = Dataset.from_tensor_slices([f"{LARGE},b c"]).map(decode)
    assert row["csv"] == LARGE
    assert row["joined"] == b"b c-!"
    assert (row["stripped"], row["part"], row["text"]) == (b"a", b"b", b"%d" % LARGE)
    assert (row["number"], row["number"].dtype) == (0.1, np.float64)
    assert (row["raw"].tolist(), row["raw"].dtype) == ([1, 2], np.int16)
    assert row["cast"].dtype == np.float32
    assert (row["wide"], row["wide"].dtype) == (2, np.int64)
    np.testing.assert_array_equal(row["image"], image)
    assert row["parts"].tolist() == [b"b", b"c"]


def test_strings_have_shapes_and_are_compared_in_a_function_of_a_dataset(graph) -> None:
    texts = np.array([b"a", b"b"], object)

    def look(_):
        shapes = tf.shape(texts), tf.shape("a"), tf.size(texts), tf.rank(texts)
        return (*shapes, tf.equal(texts, "b"), tf.not_equal(texts, texts), tf.equal("a", b"a"))

    (row,) = Dataset.range(1).map(look)
    assert [np.asarray(x).tolist() for x in row] == [
        *([2], [], 2, 1),
        *([False, True], [False, False], True),
    ]


def test_other_functions_of_a_pipeline_decode_arrays_too(graph) -> None:
    def lines(n):
        for i in range(n):
            yield tf.as_string(i)

    numbers = Dataset.from_generator(lines, [4]).filter(
        lambda line: tf.string_to_number(line, tf.int32) % 2
    )
    repeated = numbers.interleave(
        lambda line: Dataset.from_tensors(line).repeat(int(tf.string_to_number(line, tf.int32)))
    )
    assert list(repeated) == [b"1", b"3", b"3", b"3"]


def test_outside_of_a_dataset_the_decoders_of_jflow_data_give_arrays(graph) -> None:
    row = tf.data.parse_single_example(RECORDS[1], FEATURES)
    assert row["label"] == LARGE + 1
    batch = tf.data.parse_example(RECORDS, FEATURES)
    assert batch["x"].shape == (4, 2)
    assert [column.tolist() for column in tf.data.decode_csv(["1,a", "2,b"], [0, ""])] == [
        [1, 2],
        [b"a", b"b"],
    ]
    assert tf.data.decode_raw(b"\1\2", tf.uint8).tolist() == [1, 2]
    png = tf.data.encode_png(np.zeros((1, 2, 3), np.uint8))
    assert tf.data.decode_image(png).shape == tf.data.decode_png(png).shape == (1, 2, 3)
    jpeg = tf.data.encode_jpeg(np.zeros((1, 2, 3), np.uint8))
    assert tf.data.decode_jpeg(jpeg).shape == (1, 2, 3)


def test_graph_code_and_tensors_are_as_they_were() -> None:
    with tf.Graph().as_default():
        text = tf.placeholder(tf.string, [])
        with pytest.raises(errors.InvalidArgumentError, match="expected float32 values"):
            list(Dataset.from_tensor_slices([tf.data.encode_example({"x": 1})]).map(parsed_x))
        assert isinstance(tf.string_strip("a"), tf.Tensor)
        made = []
        list(Dataset.range(1).map(lambda x: made.append(tf.string_strip(text)) or x))
        with tf.Session() as session:
            assert session.run(made[0], {text: " a "}) == b"a"


def parsed_x(record):
    return tf.parse_single_example(record, {"x": tf.FixedLenFeature([], tf.float32)})


def test_a_function_that_builds_a_graph_is_told_what_to_do() -> None:
    with tf.Graph().as_default():
        dataset = Dataset.range(2).map(lambda x: tf.numpy.add(x, 1))
        with pytest.raises(errors.InvalidArgumentError, match=r"NumPy or jax\.numpy") as raised:
            list(dataset)
    assert "at element 0" in raised.value.__notes__[0]


def test_strings_and_numbers_are_not_cast_into_each_other() -> None:
    for value, dtype in (("a", tf.int32), (1, tf.string)):
        with pytest.raises(TypeError, match="cast is for numbers"):
            list(Dataset.range(1).map(lambda _, v=value, d=dtype: tf.cast(v, d)))
