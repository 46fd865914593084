"""Event files: TensorBoard opens what tensorboardX writes for jflow."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def opened(logdir: Path) -> Any:
    """What TensorBoard shows of a directory."""
    found = event_accumulator.EventAccumulator(str(logdir))
    found.Reload()
    return found


def test_tensorboard_shows_numbers_histograms_and_images(tmp_path: Path) -> None:
    x = tf.placeholder(tf.float32, ())
    tf.summary.scalar("loss", x)
    tf.summary.histogram("values", tf.numpy.arange(4.0) * x)
    tf.summary.image("picture", np.zeros((1, 2, 3, 1), np.uint8), 1)
    tf.summary.text("note", tf.constant("hello"))
    merged = tf.summary.merge_all()
    with tf.Session() as session, tf.summary.FileWriter(tmp_path / "new") as writer:
        for step in range(3):
            writer.add_summary(session.run(merged, {x: 2.0 * step}), step)
    found = opened(tmp_path / "new")
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [
        (0, 0.0),
        (1, 2.0),
        (2, 4.0),
    ]
    assert found.Histograms("values")[-1].histogram_value.sum == 24.0
    picture = found.Images("picture/image")[0]
    assert (picture.height, picture.width) == (2, 3)
    (text, *_) = found.Tensors("note")
    assert list(text.tensor_proto.string_val) == [b"hello"]


def test_the_summaries_of_the_page_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    blocks = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        if "FileWriter" in block:
            exec(compile(block, "training.md", "exec"), {"tf": tf})
    assert len(opened(tmp_path / "logs").Scalars("loss")) == 10
    (shown, *_) = opened(tmp_path / "logs" / "graph").Graph().node
    assert shown.name.startswith("layer/")


def test_tensorboard_finds_the_graph_of_a_writer(tmp_path: Path) -> None:
    tf.add(tf.placeholder(tf.float32, (None, 2), name="x"), 1.0, name="y")
    graph = tf.get_default_graph()
    definition = graph.as_graph_def(add_shapes=True)
    with tf.summary.FileWriter(tmp_path, graph):
        # TensorBoard's messages are TensorFlow's own. It is there before the writer is closed.
        shown = opened(tmp_path).Graph()
        assert shown.SerializeToString(deterministic=True) == definition.SerializeToString(
            deterministic=True
        )
        assert [node.name for node in shown.node] == ["x", "y"]
    with tf.summary.FileWriter(tmp_path / "new") as writer:
        writer.add_graph(graph.as_graph_def(), 3)
    assert len(opened(tmp_path / "new").Graph().node) == 2
    with pytest.raises(TypeError, match="expected a graph or a GraphDef, got int"):
        tf.summary.FileWriter(tmp_path / "bad", 120)  # type: ignore[arg-type]
    assert not (tmp_path / "bad").exists()


def test_a_training_writes_its_graph(tmp_path: Path) -> None:
    count = tf.train.create_global_step().assign_add(1)
    with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
        session.run(count)
    tf.summary.FileWriterCache.clear()
    definition = tf.get_default_graph().as_graph_def(add_shapes=True)
    assert str(opened(tmp_path).Graph()) == str(definition)


def test_a_training_writes_its_rate_and_its_summaries(tmp_path: Path) -> None:
    step = tf.train.create_global_step()
    tf.summary.scalar("twice", step * 2)
    count = step.assign_add(1)
    options: dict[str, Any] = {"save_summaries_steps": 2, "log_step_count_steps": 2}
    with tf.train.MonitoredTrainingSession(checkpoint_dir=tmp_path, **options) as session:
        for _ in range(5):
            session.run(count)
    tf.summary.FileWriterCache.clear()
    found = opened(tmp_path)
    assert [event.step for event in found.Scalars("twice")] == [1, 3, 5]
    assert [event.step for event in found.Scalars("global_step/sec")] == [3, 5]


def test_a_writer_can_be_closed_and_opened_again_and_is_shared_by_directory(tmp_path: Path) -> None:
    writer = tf.summary.FileWriterCache.get(tmp_path)
    assert tf.summary.FileWriterCache.get(tmp_path) is writer
    assert writer.get_logdir() == str(tmp_path)
    writer.add_scalar("a", 1.0, 1)
    writer.flush()
    assert [event.value for event in opened(tmp_path).Scalars("a")] == [1.0]
    writer.close()
    writer.close()
    with pytest.raises(RuntimeError, match=r"is closed; call reopen\(\)"):
        writer.add_scalar("a", 2.0, 2)
    writer.reopen()
    writer.add_scalar("a", 3.0, 3)
    tf.summary.FileWriterCache.clear()
    assert [event.value for event in opened(tmp_path).Scalars("a")] == [1.0, 3.0]
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_not_a_summary_is_refused(tmp_path: Path) -> None:
    with tf.summary.FileWriter(tmp_path) as writer:
        for value in (b"not a summary", tf.constant(1.0), "text"):
            with pytest.raises(tf.errors.InvalidArgumentError, match="fetch a tensor of"):
                writer.add_summary(value, 1)  # type: ignore[arg-type]


def test_threads_may_share_a_writer(tmp_path: Path) -> None:
    with tf.summary.FileWriter(tmp_path) as writer:

        def write(number: int) -> None:
            for step in range(50):
                writer.add_scalar(f"t{number}", float(step), step)

        threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = opened(tmp_path)
    for i in range(4):
        assert [event.value for event in found.Scalars(f"t{i}")] == list(range(50))
