"""`python_io`, and Examples as messages."""

import numpy as np
import pytest

import jflow as tf
from jflow.errors import InvalidArgumentError, NotFoundError


def _example(number):
    feature = {
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[number, 2.0])),
        "n": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
        "s": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a"] * number)),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature))


@pytest.mark.parametrize("compression", [None, "GZIP", tf.python_io.TFRecordCompressionType.ZLIB])
def test_records_are_written_and_read(tmp_path, compression):
    options = None if compression is None else tf.python_io.TFRecordOptions(compression)
    path = tmp_path / "a.tfrecord"
    with tf.python_io.TFRecordWriter(path, options) as writer:
        for number in range(3):
            writer.write(_example(number).SerializeToString())
    found = [tf.train.Example.FromString(x) for x in tf.python_io.tf_record_iterator(path, options)]
    assert [one.features.feature["n"].int64_list.value[0] for one in found] == [0, 1, 2]
    with pytest.raises(NotFoundError):
        next(tf.python_io.tf_record_iterator(tmp_path / "none"))


def test_the_graph_parses_what_messages_serialize():
    serialized = [_example(number).SerializeToString() for number in (1, 2)]
    parsed = tf.parse_example(
        serialized,
        {
            "x": tf.FixedLenFeature([2], tf.float32),
            "n": tf.FixedLenFeature([], tf.int64),
            "s": tf.VarLenFeature(tf.string),
        },
    )
    with tf.Session() as session:
        values = session.run(parsed)
    np.testing.assert_allclose(values["x"], [[1.0, 2.0], [2.0, 2.0]])
    assert values["n"].tolist() == [1, 2]
    assert values["s"].indices.tolist() == [[0, 0], [1, 0], [1, 1]]


def test_examples_in_json_are_converted():
    text = '{"features": {"feature": {"n": {"int64List": {"value": [7]}}}}}'
    example = tf.decode_json_example([text])
    parsed = tf.parse_example(example, {"n": tf.FixedLenFeature([], tf.int64)})
    with tf.Session() as session:
        assert session.run(parsed["n"]).tolist() == [7]
        with pytest.raises(InvalidArgumentError, match="element 1 is no Example in JSON"):
            session.run(tf.decode_json_example([text, "{"]))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "[" * 100_000, '{"other": 1}'),
        '{"features": {"feature": {"n": {"int64List": {"value": [1.5]}}}}}',
        '{"features": {"feature": {"s": {"bytesList": {"value": ["*"]}}}}}',
        '{"features": {"feature": {"s": {"bytes_list": {"value": ["YQ==", "YW*I"]}}}}}',
    ],
)
def test_text_that_tensorflow_refuses_is_no_example(text):
    with tf.Session() as session, pytest.raises(InvalidArgumentError, match="is no Example"):
        session.run(tf.decode_json_example([text]))


def test_sequences_have_contexts_and_lists():
    steps = tf.train.FeatureList(feature=[_example(1).features.feature["n"]] * 2)
    lists = tf.train.FeatureLists(feature_list={"steps": steps})
    sequence = tf.train.SequenceExample(context=_example(3).features, feature_lists=lists)
    again = tf.train.SequenceExample.FromString(sequence.SerializeToString())
    assert len(again.feature_lists.feature_list["steps"].feature) == 2
    assert again.context.feature["n"].int64_list.value == [3]
