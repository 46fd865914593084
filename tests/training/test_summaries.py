"""Summaries: what operations serialize, and the writer of event files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.client.ops.summaries import WRITERS, DefaultWriter
from jflow.state.records.v1 import summary_pb2 as pb
from jflow.training import event_files
from tests.clusters import Backend


def run(backend: Backend, summary: Any, feeds: Any = None) -> Any:
    """The values of a summary, as messages."""
    with backend.session() as session:
        data = session.run(summary, feeds)
    assert isinstance(data, bytes)
    return pb.Summary.FromString(data).value


def test_a_scalar_is_a_tag_and_a_number(backend: Backend) -> None:
    with tf.device(backend.devices[-1]):
        x = tf.placeholder(tf.float32, ())
        summary = tf.summary.scalar("loss", x * 2)
    (value,) = run(backend, summary, {x: 1.5})
    assert (value.tag, value.simple_value) == ("loss", 3.0)


def test_tags_are_unique_and_have_the_name_scope_and_the_family() -> None:
    with tf.Session() as session:
        with tf.name_scope("tower"):
            made = [tf.summary.scalar("a loss", 1) for _ in range(2)]
        made.append(tf.summary.scalar("x", 1.0, family="losses"))
        tags = [pb.Summary.FromString(data).value[0].tag for data in session.run(made)]
    assert tags == ["tower/a_loss", "tower/a_loss_1", "losses/losses/x"]


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int32])
def test_a_histogram_counts_the_values_of_each_bucket(dtype: Any) -> None:
    values = tf.constant([[0, 1], [-1, 1]], dtype)
    with tf.Session() as session:
        data = session.run(tf.summary.histogram("w", values))
    (value,) = pb.Summary.FromString(data).value
    histogram = value.histo
    assert (histogram.min, histogram.max, histogram.num) == (-1, 1, 4)
    assert (histogram.sum, histogram.sum_squares) == (1, 3)
    limits = list(histogram.bucket_limit)
    counted = {
        x: count
        for x in (-1, 0, 1)
        for low, high, count in zip([-np.inf, *limits[:-1]], limits, histogram.bucket, strict=True)
        if low <= x < high
    }
    assert counted == {-1: 1, 0: 1, 1: 2}
    assert sum(histogram.bucket) == 4
    assert len(histogram.bucket) < 10  # runs of empty buckets are one


def test_a_histogram_refuses_what_is_not_finite(backend: Backend) -> None:
    x = tf.placeholder(tf.float32, (2,))
    with backend.session() as session, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(tf.summary.histogram("w", x), {x: [1, np.nan]})
    assert "NaN in the histogram summary 'w'" in caught.value.message


def test_images_are_png_files_with_floats_scaled(backend: Backend) -> None:
    pixels = np.zeros((4, 2, 3, 1), np.float32)
    pixels[0, 0] = [[0], [1], [2]]
    pixels[1, 0] = [[-2], [0], [np.nan]]
    values = run(backend, tf.summary.image("digit", pixels, max_outputs=2))
    assert [value.tag for value in values] == ["digit/image/0", "digit/image/1"]
    decoded = []
    for value in values:
        assert (value.image.height, value.image.width, value.image.colorspace) == (2, 3, 1)
        decoded.append(tf.data.decode_png(value.image.encoded_image_string)[0, :, 0].tolist())
    assert decoded == [[0, 127, 255], [0, 127, 255]]
    (only,) = run(backend, tf.summary.image("one", np.zeros((1, 1, 1, 3), np.uint8), 1))
    assert only.tag == "one/image"


def test_text_is_a_tensor_for_the_plugin(backend: Backend) -> None:
    (value,) = run(backend, tf.summary.text("note", tf.constant(["a", "b"])))
    assert value.metadata.plugin_data.plugin_name == "text"
    assert value.tensor.dtype == 7
    assert [dim.size for dim in value.tensor.tensor_shape.dim] == [2]
    assert list(value.tensor.string_val) == [b"a", b"b"]


def test_summaries_are_merged(backend: Backend) -> None:
    assert tf.summary.merge_all() is None
    tf.summary.scalar("a", 1.0)
    with tf.name_scope("inner"):
        tf.summary.scalar("b", 2.0)
    apart = tf.summary.scalar("c", 3.0, collections=["others"])
    merged = tf.summary.merge_all()
    assert [value.tag for value in run(backend, merged)] == ["a", "inner/b"]
    assert [value.tag for value in run(backend, tf.summary.merge_all(scope="inner/"))] == [
        "inner/b"
    ]
    assert [value.tag for value in run(backend, tf.summary.merge([merged, apart]))] == [
        *("a", "inner/b"),
        "c",
    ]
    with pytest.raises(tf.errors.InvalidArgumentError, match="duplicate tag 'c'"):
        run(backend, tf.summary.merge([apart, apart]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected a serialized summary"):
        run(backend, tf.summary.merge([tf.constant("not a summary")]))


def test_what_cannot_be_summarized_is_refused_when_the_graph_is_built() -> None:
    with pytest.raises(ValueError, match=r"'w' requires a scalar, got shape \(2,\)"):
        tf.summary.scalar("w", [1.0, 2.0])
    with pytest.raises(TypeError, match="expected strings"):
        tf.summary.text("w", 1.0)
    with pytest.raises(ValueError, match="at least one summary"):
        tf.summary.merge([])
    with pytest.raises(ValueError, match="max_outputs of at least 1"):
        tf.summary.image("w", np.zeros((1, 1, 1, 1), np.uint8), 0)
    with pytest.raises(ValueError, match="a name for the summary, got '/'"):
        tf.summary.scalar("/", 1.0)


def test_a_writer_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    with pytest.raises(tf.errors.UnimplementedError, match=r"pip install 'jflow\[summaries\]'"):
        tf.summary.FileWriter(tmp_path / "logs")
    assert not (tmp_path / "logs").exists()


def test_without_the_package_a_training_only_logs_its_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_files, "find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    step = tf.train.create_global_step()
    count = step.assign_add(1)
    with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
        session.run(count)
    assert tf.train.latest_checkpoint(tmp_path)
    tf.summary.scalar("step", step)
    with pytest.raises(tf.errors.UnimplementedError, match=r"jflow\[summaries\]"):
        tf.train.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, scaffold=tf.train.Scaffold(summary_op=tf.summary.merge_all())
        )


# Without a graph ----------------------------------------------------------------------------------


class Writer:
    """Keeps the values of summaries, by step."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int | None]] = []
        self.messages: list[Any] = []

    def add_summary(self, summary: bytes, global_step: int | None = None) -> None:
        (value,) = pb.Summary.FromString(summary).value
        self.seen.append((value.tag, global_step))
        self.messages.append(value)


@pytest.fixture
def writer(backend: Backend) -> Iterator[Writer]:
    made = Writer()
    with tf.connect(backend.target), WRITERS.pushed(DefaultWriter(made, None)):
        yield made


def test_a_value_is_recorded_with_its_step(writer: Writer) -> None:
    loss = tf.Variable(0.5, name="loss")
    for step in range(2):
        loss.assign_add(1.0)
        data = tf.summary.scalar("a loss", loss, step=step, family="train")
        assert isinstance(data, bytes)
    tf.summary.histogram("w", np.arange(5.0), step=2)
    tf.summary.text("note", "**bold**", step=3)
    assert writer.seen == [("train/a_loss", 0), ("train/a_loss", 1), ("w", 2), ("note", 3)]
    assert [one.simple_value for one in writer.messages[:2]] == [1.5, 2.5]
    assert writer.messages[2].histo.num == 5
    assert writer.messages[3].tensor.string_val == [b"**bold**"]


def test_the_step_of_the_writer_is_that_of_summaries_without_one(writer: Writer) -> None:
    with WRITERS.pushed(DefaultWriter(writer, 7)):
        tf.summary.scalar("x", 1.0)
    with pytest.raises(ValueError, match="'x' has no step: give step="):
        tf.summary.scalar("x", 1.0)
    assert writer.seen == [("x", 7)]


def test_without_a_writer_a_summary_is_serialized_only() -> None:
    with tf.connect():
        (value,) = pb.Summary.FromString(tf.summary.scalar("x", np.float32(2.0))).value
    assert (value.tag, value.simple_value) == ("x", 2.0)


def test_what_cannot_be_recorded_is_refused(writer: Writer) -> None:
    @tf.function
    def inside(x: Any) -> Any:
        tf.summary.scalar("x", x, step=1)
        return x

    variable = tf.Variable(1.0, name="read")

    @tf.function
    def of_a_variable() -> Any:
        tf.summary.scalar("x", variable, step=1)

    @tf.function
    def of_a_constant() -> Any:
        tf.summary.scalar("x", 1.0, step=1)

    for call in (lambda: inside(1.0), of_a_variable, of_a_constant):
        with pytest.raises(TypeError, match="return the value from the function"):
            call()
    with pytest.raises(tf.errors.InvalidArgumentError, match="requires a scalar"):
        tf.summary.scalar("x", np.ones(3), step=1)
    with pytest.raises(ValueError, match="has collections, and is of no graph"):
        tf.summary.scalar("x", 1.0, collections=["mine"], step=1)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="is of a graph"):
        tf.summary.scalar("x", 1.0, step=1)
    assert not writer.seen


def test_serialized_summaries_are_merged_without_a_graph(writer: Writer) -> None:
    n_operations = len(tf.get_default_graph().get_operations())
    made = [tf.summary.scalar(name, 1.0, step=1) for name in ("a", "b")]
    merged = tf.summary.merge(made)
    assert [value.tag for value in pb.Summary.FromString(merged).value] == ["a", "b"]
    assert len(tf.get_default_graph().get_operations()) == n_operations


def test_summaries_of_a_file_writer_are_in_its_file(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    writer = tf.summary.create_file_writer(tmp_path)
    with tf.connect(), writer.as_default(step=4):
        tf.summary.scalar("loss", 0.25)
    writer.close()
    (file,) = tmp_path.iterdir()
    assert b"loss" in file.read_bytes()
