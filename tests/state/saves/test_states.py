"""`jflow.checkpoint.save` and `restore`: sessions, eager state, and every kind of resource."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.launch.testing.backends import BackendUnderTest
from jflow.testing import wait_until


def test_a_whole_session_is_saved_and_restored(backend: BackendUnderTest, tmp_path: Path) -> None:
    text = tmp_path / "lines.txt"
    text.write_text("a\nb\nc\nd\n")
    with tf.device(backend.devices[-1]):
        step = tf.Variable(np.int32(3), name="step")
        key = tf.Variable(jax.random.key(5), name="key")
        queue = tf.FIFOQueue(10, [tf.int32, tf.string], [(), ()], shared_name="fifo")
        shuffled = tf.RandomShuffleQueue(10, 0, tf.int32, ((),), seed=3, shared_name="shuffled")
        sums = tf.ConditionalAccumulator(tf.float32, (2,), shared_name="sums")
    value = tf.placeholder(tf.int32, ())
    put = tf.group(queue.enqueue([value, tf.as_string(value)]), shuffled.enqueue(value))
    add = sums.apply_grad(tf.constant([1.0, 2.0]), step)
    got = [queue.dequeue(), shuffled.dequeue_many(4)]
    mean = sums.take_grad(2)
    session = backend.session()
    session.run(tf.global_variables_initializer())
    for number in range(5):
        session.run(put, {value: number})
    session.run([add])
    session.run(queue.dequeue())
    report = tf.checkpoint.save(tmp_path / "all", session, about={"run": "first"})
    assert report.n_bytes == 4 + 8
    session.run(add)
    expected = session.run([*got, mean, queue.size()])
    session.run([queue.close(), step.assign(0)])
    session.close()
    backend.reset()
    with backend.session() as session:
        tf.checkpoint.restore(tmp_path / "all")
        assert session.run(step) == 3
        np.testing.assert_array_equal(
            jax.random.key_data(session.run(key)), jax.random.key_data(jax.random.key(5))
        )
        session.run(add)
        jax.tree.map(
            np.testing.assert_array_equal, session.run([*got, mean, queue.size()]), expected
        )


def test_eager_state_is_saved_and_restored(backend: BackendUnderTest, tmp_path: Path) -> None:
    with tf.connect(backend.target):
        weights = tf.Variable(jnp.arange(3.0), name="weights")
        queue = tf.FIFOQueue(5, tf.int32, ((),), shared_name="eager")
        queue.enqueue(3)
        state = {"model": {"w": weights}, "queue": queue}
        tf.checkpoint.save(tmp_path / "eager", state)
        assert tf.train.list_variables(tmp_path / "eager") == [("model/w", [3])]
        weights.assign(jnp.zeros(3))
        queue.enqueue(4)
        tf.checkpoint.restore(tmp_path / "eager", state)
        np.testing.assert_array_equal(weights.numpy(), [0, 1, 2])
        assert queue.size() == 1
        assert queue.dequeue() == 3
        tf.checkpoint.restore(tmp_path / "eager", {"model": {"w": weights}})


def test_a_function_goes_on_with_what_was_restored(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    with tf.connect(backend.target):
        count = tf.Variable(0, name="count")

        @tf.function
        def increase() -> Any:
            return count.assign_add(1)

        increase()
        tf.checkpoint.save(tmp_path / "count", [count])
        increase()
        tf.checkpoint.restore(tmp_path / "count", [count])
        assert increase() == 2


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(ValueError, match="no default session"):
        tf.checkpoint.save(path)
    v = tf.Variable(1.0, name="v")
    with pytest.raises(ValueError, match="inside `with session:`"):
        tf.checkpoint.save(path, [v])
    with pytest.raises(TypeError, match=r"got ndarray at 'a/b'.*as a Variable"):
        tf.checkpoint.save(path, {"a": {"b": np.zeros(2)}})
    with pytest.raises(ValueError, match="nothing to save"):
        tf.checkpoint.save(path, {})
    with tf.connect():
        other = tf.Variable(1.0)
        with pytest.raises(ValueError, match="one graph or of one connection"):
            tf.checkpoint.save(path, {"a": v, "b": other})
    with tf.Graph().as_default(), tf.Session() as session:
        tf.constant(1.0)
        with pytest.raises(tf.errors.InvalidArgumentError, match="uses no state"):
            tf.checkpoint.save(path, session)
    assert not [*tmp_path.iterdir()]


def test_the_keys_of_lists_and_containers(tmp_path: Path) -> None:
    with tf.container("mine"):
        inner = tf.Variable(1.0, name="v")
    outer = tf.Variable(2.0, name="v2")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.checkpoint.save(tmp_path / "list", [inner, outer])
        tf.checkpoint.save(tmp_path / "dict", {"layers": [inner, outer]})
    assert tf.train.list_variables(tmp_path / "list") == [("mine//v", []), ("v2", [])]
    assert tf.train.list_variables(tmp_path / "dict") == [("layers/0", []), ("layers/1", [])]


def test_what_is_not_shared_is_restored_for_one_session_and_freed_with_it(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    queue = tf.FIFOQueue(5, tf.int32, ((),))
    put, take, size = queue.enqueue(3), queue.dequeue(), queue.size()
    with backend.session() as session:
        tf.checkpoint.save(tmp_path / "new", session)
        session.run([put])
        tf.checkpoint.save(tmp_path / "one", session)
    with backend.session() as session:
        tf.checkpoint.restore(tmp_path / "one", session)
        assert session.run(size) == 1
        assert session.run(take) == 3
        tf.checkpoint.restore(tmp_path / "one", session)
        tf.checkpoint.restore(tmp_path / "new", session)
        assert session.run(size) == 0


def test_a_session_that_only_restores_leaves_no_resources(tmp_path: Path) -> None:
    queue = tf.FIFOQueue(5, tf.int32, ((),))
    put = queue.enqueue(3)
    with tf.train.Server({"local": ["127.0.0.1:0"]}) as server:
        resources = server.worker.containers.resources
        with tf.Session(server.target) as session:
            session.run(put)
            tf.checkpoint.save(tmp_path / "one", session)
        wait_until(lambda: not resources.cells(), "the end of the first session")
        with tf.Session(server.target) as session:
            tf.checkpoint.restore(tmp_path / "one", session)
            assert resources.cells()
        wait_until(lambda: not resources.cells(), "the end of the second session")
