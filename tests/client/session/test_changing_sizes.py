"""Variables that change their size, and values whose size is known only in the step."""

from __future__ import annotations

import numpy as np
import pytest

import jflow as tf
from tests.clusters import Backend


def test_a_value_of_unknown_size_is_checked_when_it_is_assigned(backend: Backend) -> None:
    with tf.device(backend.devices[1]):
        w = tf.Variable([1.0, 2.0], name="w")
    fed = [tf.placeholder(tf.float32), tf.placeholder(tf.float32, (None,))]
    changes = [change(p) for p in fed for change in (w.assign, w.assign_add, w.assign_sub)]
    with backend.session() as session:
        session.run(w.initializer)
        for change, p in zip(changes, [p for p in fed for _ in range(3)], strict=True):
            with pytest.raises(
                tf.errors.InvalidArgumentError,
                match=r"variable 'w' .*expected a value of shape \(2,\), got \(3,\)",
            ):
                session.run(change, {p: [1.0, 2.0, 3.0]})
            assert session.run(w).tolist() == [1, 2]
            session.run(change, {p: [3.0, 5.0]})
            session.run(w.initializer)
        assert session.run(changes[1], {fed[0]: [3.0, 5.0]}).tolist() == [4, 7]
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"got \(2, 1\)"):
            session.run(changes[0], {fed[0]: [[1.0], [2.0]]})


def test_updates_of_unknown_size_are_checked_when_they_are_scattered(backend: Backend) -> None:
    with tf.device(backend.devices[1]):
        w = tf.Variable(np.zeros((4, 2), np.float32), name="w")
    at, values = tf.placeholder(tf.int32, (None,)), tf.placeholder(tf.float32, (None, None))
    pairs, whole = tf.placeholder(tf.int32, (None, 2)), tf.placeholder(tf.float32)
    rows, known = tf.scatter_add(w, at, values), tf.scatter_add(w, at, np.ones((1, 2), np.float32))
    nd = tf.scatter_nd_update(w, pairs, whole)
    right = {at: [0, 3], values: np.ones((2, 2)), pairs: [[0, 0], [3, 1]], whole: [5.0, 6.0]}
    with backend.session() as session:
        session.run(w.initializer)
        for update, wrong, message in (
            (rows, {values: np.ones((1, 2))}, r"shape \(2, 2\), got \(1, 2\)"),
            (rows, {values: np.ones((2, 1))}, r"shape \(2, 2\), got \(2, 1\)"),
            (known, {}, r"shape \(2, 2\), got \(1, 2\)"),
            (nd, {whole: [5.0]}, r"shape \(2,\), got \(1,\)"),
            (nd, {whole: 5.0}, r"shape \(2,\), got \(\)"),
        ):
            used = {rows: (at, values), known: (at,), nd: (pairs, whole)}[update]
            feeds = {key: {**right, **wrong}[key] for key in used}
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=f"cannot scatter into variable 'w'.*{message}"
            ):
                session.run(update, feeds)
        assert not session.run(w).any()
        session.run(rows, {at: [0, 3], values: np.ones((2, 2))})
        session.run(known, {at: [1]})
        session.run(nd, {pairs: [[0, 0], [3, 1]], whole: [5.0, 6.0]})
        assert session.run(w).tolist() == [[5, 1], [1, 1], [0, 0], [1, 6]]


def test_an_initial_value_of_unknown_shape_is_refused_at_its_line(backend: Backend) -> None:
    with backend.session():
        for shape in (None, (None,), (2, None)):
            given = tf.placeholder(tf.float32, shape, name="given")
            for value in (given, lambda given=given: given):
                with pytest.raises(
                    ValueError,
                    match=r"variable 'x' needs an initial value of known shape, got .*'given.*"
                    r"test_changing_sizes.py:.*jflow.ensure_shape",
                ):
                    tf.Variable(value, name="x")
        with pytest.raises(ValueError, match="'x' needs an initial value of known rank") as raised:
            tf.Variable(tf.placeholder(tf.float32), name="x", validate_shape=False)
        assert "validate_shape=False" not in str(raised.value)


def test_a_variable_may_change_its_sizes(backend: Backend) -> None:
    given = tf.placeholder(tf.float32, (None,), name="given")
    with tf.device(backend.devices[1]):
        x = tf.Variable(given, name="x", validate_shape=False)
    assert not isinstance(x.shape[0], int)
    other, whole = tf.placeholder(tf.float32, (None,)), tf.placeholder(tf.float32)
    of_rank = x.assign(whole)
    with tf.device(backend.devices[0]):
        total, doubled, grown = tf.numpy.sum(x), x * 2, x.assign(tf.numpy.concatenate([x, other]))
        added = x.assign(x + 1.0)
    known = x.assign([7.0, 8.0, 9.0, 10.0])
    for which in range(2 if backend.shared else 1):
        with backend.session(which) as session:
            session.run(x.initializer, {given: [1.0, 2.0, 3.0]})
            assert [value.tolist() for value in session.run([total, doubled])] == [6, [2, 4, 6]]
            assert session.run(grown, {other: [5.0]}).tolist() == [1, 2, 3, 5]
            assert session.run([x.name, total])[0].tolist() == [1, 2, 3, 5]
            assert session.run(added).tolist() == [2, 3, 4, 6]
            assert session.run(of_rank, {whole: [5.0, 6.0]}).tolist() == [5, 6]
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"shape \(None,\), got \(1, 1\)"
            ):
                session.run(of_rank, {whole: [[1.0]]})
            assert session.run(total) == 11
            assert session.run(known).tolist() == [7, 8, 9, 10]
            assert session.run(x).tolist() == [7, 8, 9, 10]
    if backend.shared:
        with tf.Graph().as_default(), backend.session() as session:
            with tf.device(backend.devices[1]):
                again = tf.Variable([0.0], name="x", validate_shape=False)
            assert session.run(again).tolist() == [7, 8, 9, 10]
        with tf.Graph().as_default(), backend.session() as session:
            with tf.device(backend.devices[1]):
                fixed = tf.Variable([0.0] * 4, name="x")
            with pytest.raises(
                tf.errors.InvalidArgumentError,
                match=r"shape \(None,\), but this graph expects.*\(4,\)",
            ):
                session.run(fixed)


def test_what_a_variable_of_changing_size_cannot_do_is_refused(backend: Backend) -> None:
    x = tf.Variable([1.0, 2.0], name="x", validate_shape=False)
    with pytest.raises(ValueError, match="cannot assign a value of shape"):
        x.assign([[1.0]])
    with pytest.raises(ValueError, match=r"'x'.*may change its size, so its rows"):
        tf.scatter_add(x, [0], 1.0)
    with pytest.raises(ValueError, match=r"'x'.*cannot be used in a traced function"):
        tf.function(x.assign)(tf.constant([1.0]))
    with pytest.raises(ValueError, match=r"'x'.*cannot be updated in place; assign a new"):
        x.assign_add([1.0, 2.0])
    with (
        tf.connect(backend.targets[0]),
        pytest.raises(ValueError, match="is eager and cannot have validate_shape=False"),
    ):
        tf.Variable([1.0], name="x", validate_shape=False)


def test_reads_before_and_after_a_change_of_size_find_each_their_own(backend: Backend) -> None:
    with tf.device(backend.devices[1]):
        x = tf.Variable([1.0, 2.0], name="x", validate_shape=False)
        before = x.read_value()
        doubled = before * 2
        with tf.control_dependencies([doubled]):
            change = x.assign([1.0, 2.0, 3.0])
        with tf.control_dependencies([change]):
            after = x.read_value()
    with tf.device(backend.devices[1]):
        near = [after * 2, tf.numpy.zeros(after.shape)]
    with tf.device(backend.devices[0]):
        far = [after * 2, tf.numpy.zeros(after.shape), tf.numpy.ones(before.shape)]
    with backend.session() as session:
        session.run(x.initializer)
        assert [value.tolist() for value in session.run([doubled, after])] == [[2, 4], [1, 2, 3]]
        session.run(x.initializer)
        found = [value.tolist() for value in session.run([doubled, *far])]
        assert found == [[2, 4], [2, 4, 6], [0, 0, 0], [1, 1]]
        for fetch in near:
            with pytest.raises(
                tf.errors.InvalidArgumentError,
                match=r"'read_value.*' reads variable 'x'.*after 'Assign.*' has set it.*next step",
            ):
                session.run([doubled, after, fetch])
