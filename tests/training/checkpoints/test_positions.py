"""Positions of iterators that are saved with variables, and go on where the checkpoint was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import jflow as tf
from jflow.data import Dataset
from jflow.launch.testing.backends import BackendUnderTest
from jflow.state.checkpoint_files import open_checkpoint


def numbers(end: int = 100) -> Any:
    """An iterator over the same shuffled numbers each time."""
    return Dataset.range(end).shuffle(10, seed=3).batch(2).iterator()


def taken(iterator: Any, n: int) -> list[list[int]]:
    return [next(iterator).tolist() for _ in range(n)]


def test_an_iterator_and_a_variable_go_on_where_they_were_saved(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    with tf.device(backend.devices[-1]):
        total = tf.Variable(0, name="total")
    batch = tf.placeholder(tf.int32, (2,))
    train = total.assign_add(tf.numpy.sum(batch))
    saver = tf.train.Saver({"total": total, "input": (iterator := numbers())})
    with backend.session() as session:
        session.run(total.initializer)
        for _ in range(3):
            session.run(train, {batch: next(iterator)})
        path = saver.save(session, tmp_path / "model")
        saved, following = session.run(total), taken(iterator, 4)
        session.run(total.assign(-1))
    backend.reset()
    another = numbers()
    with backend.session() as session:
        tf.train.Saver({"total": total, "input": another}).restore(session, path)
        assert session.run(total) == saved
        assert taken(another, 4) == following


def test_iterators_among_saveable_objects_are_saved_with_a_session(tmp_path: Path) -> None:
    v = tf.Variable(1, name="v")
    first, second = numbers(), numbers(50)
    for one in (first, second):
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, one)
    with tf.Session() as session:
        session.run(v.initializer)
        taken(first, 2)
        with pytest.warns(UserWarning, match=r"exported without <jflow.data.DatasetIterator"):
            path = tf.train.Saver().save(session, tmp_path / "saver")
        tf.checkpoint.save(tmp_path / "session", session)
        expected = taken(first, 3), taken(second, 3)
        for restore in (
            lambda: tf.train.Saver().restore(session, path),
            lambda: tf.checkpoint.restore(tmp_path / "session", session),
        ):
            restore()
            assert (taken(first, 3), taken(second, 3)) == expected


def test_iterators_in_nested_dicts_are_saved_beside_eager_state(tmp_path: Path) -> None:
    with tf.connect():
        state = {"w": tf.Variable(1.0), "inputs": {"train": numbers(), "test": [numbers(40)]}}
        iterators = [state["inputs"]["train"], state["inputs"]["test"][0]]
        taken(iterators[0], 5)
        tf.checkpoint.save(tmp_path / "all", state, about={"run": "first"})
        expected = [taken(one, 2) for one in iterators]
        tf.checkpoint.restore(tmp_path / "all", state)
        assert [taken(one, 2) for one in iterators] == expected
    with open_checkpoint(tmp_path / "all") as checkpoint:
        assert {*checkpoint.about} == {
            "run",
            "jflow.iterator/inputs/train",
            "jflow.iterator/inputs/test/0",
        }


def test_if_one_position_cannot_be_restored_nothing_is(tmp_path: Path) -> None:
    with tf.connect():
        v = tf.Variable(1, name="v")
        first, second = numbers(), numbers(50)
        tf.checkpoint.save(tmp_path / "saved", {"v": v, "a": first, "b": second})
        v.assign(2)
        at = taken(first, 2)
        changed = Dataset.range(7).iterator()
        with pytest.raises(tf.errors.FailedPreconditionError, match="another pipeline"):
            tf.checkpoint.restore(tmp_path / "saved", {"v": v, "a": first, "b": changed})
        with pytest.raises(tf.errors.NotFoundError, match=r"'c' not found .* \['a', 'b'\]"):
            tf.checkpoint.restore(tmp_path / "saved", {"v": v, "a": first, "c": second})
        # The variables are restored behind the positions, and take these back with them.
        missing = {"w": tf.Variable(0, name="w"), "a": first}
        with pytest.raises(tf.errors.NotFoundError, match="key 'w' not found"):
            tf.checkpoint.restore(tmp_path / "saved", missing)
        assert v.numpy() == 2
        tf.checkpoint.restore(tmp_path / "saved", {"v": v, "a": first})
        assert taken(first, 2) == at


class _Counter:
    """An iterator with a position of any kind."""

    def __init__(self, position: Any) -> None:
        self.position = position

    def get_state(self) -> Any:
        return self.position

    def set_state(self, position: Any) -> None:
        self.position = position


def test_a_position_that_cannot_be_saved_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    with tf.connect():
        v = tf.Variable(1, name="v")
        for position, why in ((b"raw", "not JSON"), ("x" * (1 << 20), "take 1048578 bytes")):
            with pytest.raises(tf.errors.InvalidArgumentError, match=why):
                tf.checkpoint.save(tmp_path / "bad", [v, _Counter(position)])
        with numbers() as closed:
            pass
        with pytest.raises(tf.errors.FailedPreconditionError, match="iterator is closed"):
            tf.checkpoint.save(tmp_path / "bad", [v, closed])
        assert not [*tmp_path.iterdir()]
        tf.checkpoint.save(tmp_path / "good", [v, _Counter({"step": 3})])
        counter = _Counter(None)
        tf.checkpoint.restore(tmp_path / "good", [v, counter])
        assert counter.position == {"step": 3}
