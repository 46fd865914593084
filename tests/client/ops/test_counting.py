"""Counting up to a limit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import jflow as tf
from tests.clusters import Backend


def test_it_gives_the_values_before_and_stays_at_the_limit() -> None:
    count = tf.Variable(5, name="count")
    up = tf.count_up_to(count, 7)
    with tf.Session() as session:
        session.run(count.initializer)
        assert [int(session.run(up)), int(session.run(up))] == [5, 6]
        for _ in range(2):
            with pytest.raises(tf.errors.OutOfRangeError, match=r"limit of 7: 'count:0' is 7"):
                session.run(up)
        assert session.run(count) == 7
        assert session.run(tf.count_up_to(count, 8)) == 7


def test_a_counter_beyond_the_limit_is_left_alone() -> None:
    count = tf.Variable(np.uint8(9))
    with tf.Session() as session:
        session.run(count.initializer)
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(tf.count_up_to(count, 3))
        assert session.run(count) == 9


def test_it_has_to_be_initialized() -> None:
    with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError):
        session.run(tf.count_up_to(tf.Variable(0), 3))


def test_it_waits_for_the_block_around_it() -> None:
    first = tf.Variable(0, name="first")
    count = tf.Variable(0, name="count")
    with tf.control_dependencies([first.assign_add(1)]):
        up = tf.count_up_to(count, 3)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(up)
        assert session.run([first, count]) == [1, 1]


def test_no_number_is_given_twice(backend: Backend) -> None:
    n, limit = 8, 40
    with tf.device(backend.devices[-1]):
        count = tf.Variable(0, name="count")
    up = tf.count_up_to(count, limit)

    def drain(session: tf.Session) -> list[int]:
        found = []
        while True:
            try:
                found.append(int(session.run(up)))
            except tf.errors.OutOfRangeError:
                return found

    with backend.session(0) as one, backend.session(1) as other:
        one.run(count.initializer)
        sessions = [one, other if backend.shared else one] * (n // 2)
        with ThreadPoolExecutor(n) as threads:
            found = [*threads.map(drain, sessions)]
        assert sorted(value for part in found for value in part) == [*range(limit)]


def test_only_scalars_of_integers_count() -> None:
    for wrong in (tf.Variable(0.0), tf.Variable([1]), tf.constant(0), 3):
        with pytest.raises(TypeError, match="scalar integer variable"):
            tf.count_up_to(wrong, 3)  # type: ignore[arg-type]
    with tf.connect(), pytest.raises(TypeError, match="graph code"):
        tf.count_up_to(tf.Variable(0), 3)


def test_local_variables_are_listed_and_initialized_apart() -> None:
    own = tf.Variable(1, name="own", collections=["local_variables"], trainable=False)
    both = tf.Variable(2, name="both")
    assert tf.local_variables() == [own]
    assert tf.global_variables() == tf.trainable_variables() == [both]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.FailedPreconditionError, match="own"):
            session.run(own)
        session.run(tf.local_variables_initializer())
        assert session.run([own, both]) == [1, 2]
