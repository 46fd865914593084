"""Strings through graphs, on every backend: they move between tasks and never reach XLA."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import jflow as tf
from jflow.inspect import picture
from tests.clusters import Backend

ODD = [b"", b"\0", b"nul\0 inside", "naïve ☃".encode(), b"\xff\xfe", b"x" * 100_000]


def _moved(tensor: tf.Tensor, backend: Backend) -> tf.Tensor:
    for device in (backend.devices[1], backend.devices[0], backend.devices[1]):
        with tf.device(device):
            tensor = tf.identity(tensor)
    return tensor


def test_strings_come_back_as_bytes_over_any_number_of_devices(backend: Backend) -> None:
    x = tf.placeholder(tf.string, [len(ODD)])
    constant = tf.constant(ODD)
    with backend.session() as session:
        for got in session.run(
            [x, _moved(x, backend), constant, _moved(constant, backend)], {x: ODD}
        ):
            assert got.dtype == object
            assert got.tolist() == ODD


def test_a_string_without_dimensions_comes_back_as_bytes(backend: Backend) -> None:
    x = tf.placeholder(tf.string, ())
    with backend.session() as session:
        got = session.run(
            [tf.constant("abc"), _moved(x, backend), x, tf.identity(b"\xff")], {x: "é"}
        )
    assert got == [b"abc", "é".encode(), "é".encode(), b"\xff"]
    assert all(type(value) is bytes for value in got)


def test_no_strings_at_all_have_a_shape_too(backend: Backend) -> None:
    x = tf.placeholder(tf.string, (0, 3))
    with backend.session() as session:
        got = session.run(_moved(x, backend), {x: np.empty((0, 3), object)})
    assert (got.shape, got.dtype) == ((0, 3), object)


def test_a_constant_of_strings_fills_a_shape_and_goes_where_it_is_needed(backend: Backend) -> None:
    filled = tf.constant(["a", "b"], shape=(2, 2))
    with backend.session() as session:
        assert session.run(_moved(filled, backend)).tolist() == [[b"a", b"b"], [b"b", b"b"]]


def test_strings_and_numbers_share_steps_and_keep_their_order(backend: Backend) -> None:
    with tf.device(backend.devices[1]):
        count = tf.Variable(0, name="count")
        with tf.control_dependencies([count.assign_add(1)]):
            word = tf.identity("after")
        with tf.control_dependencies([word]):
            seen = count.read_value()
    with tf.device(backend.devices[0]), tf.control_dependencies([_moved(word, backend)]):
        done = tf.no_op()
    with backend.session() as session:
        session.run(count.initializer)
        assert session.run([word, seen, done, count.op]) == [b"after", 1, None, None]
        assert session.run([seen, tf.constant(1.0) + 1]) == [2, 2.0]


def test_what_is_fetched_is_the_fetcher_s_own(backend: Backend) -> None:
    constant, x = tf.constant(["a", "b"]), tf.placeholder(tf.string, [2])
    given = np.array([b"c", b"d"], object)
    with backend.session() as session:
        for tensor in (constant, tf.identity(x)):
            session.run(tensor, {x: given})[0] = b"changed"
        assert session.run(constant).tolist() == [b"a", b"b"]
    assert given.tolist() == [b"c", b"d"]


@pytest.mark.parametrize(
    "bad", [1, [1, 2, 3], ["a", "b", 3], [None] * 3, [1.5] * 3, ["a", "b"]], ids=str
)
def test_a_feed_that_is_not_of_strings_or_of_another_shape_is_refused(
    backend: Backend, bad: object
) -> None:
    x = tf.placeholder(tf.string, [3], name="x")
    with backend.session() as session:
        with pytest.raises((TypeError, ValueError), match=r"'x:0'"):
            session.run(x, {x: bad})
        assert session.run(x, {x: ["a", b"b", "c"]}).tolist() == [b"a", b"b", b"c"]


def test_a_placeholder_of_strings_must_be_fed(backend: Backend) -> None:
    x = tf.placeholder(tf.string, [1], name="x")
    with (
        backend.session() as session,
        pytest.raises(tf.errors.InvalidArgumentError, match=r"'x'.*string"),
    ):
        session.run(tf.identity(x))


def test_a_string_of_another_device_is_not_taken_for_the_result_of_a_program() -> None:
    with tf.device("/cpu:1"):
        word = tf.constant("a")
    with tf.device("/cpu:0"):
        three = tf.constant(1.0) + 2
    with tf.Session() as session:
        assert session.run([three, word]) == [3.0, b"a"]


def test_a_picture_shows_strings() -> None:
    words = tf.constant(["a", "b"], name="words")
    with tf.device("/cpu:1"):
        word = tf.identity(words, name="word")
    with tf.Session() as session:
        assert "string[2]" in picture(session.placement(word))


@pytest.mark.parametrize(
    "use",
    [
        tf.numpy.sin,
        lambda x: x + 1,
        lambda x: x[0],
        lambda x: tf.numpy.concatenate([x, x]),
        lambda x: tf.numpy.where(x, 1, 2),
        lambda x: tf.gradients(x, x),
        lambda x: tf.gradients(tf.constant(1.0), x),
        tf.Variable,
        lambda x: tf.Variable(1.0).assign(x),
        lambda x: tf.Variable("text"),
        lambda x: tf.Variable(1.0, dtype=tf.string),
    ],
)
def test_what_computes_with_numbers_refuses_strings(use: Callable[[tf.Tensor], object]) -> None:
    with pytest.raises(TypeError, match=r"string|text"):
        use(tf.constant(["a", "b"]))


def test_comparisons_of_strings_check_shapes_and_dtypes() -> None:
    unknown, rows = tf.placeholder(tf.string), tf.placeholder(tf.string, [None, 2])
    row = tf.constant([["a", "b"]])
    assert tf.equal(rows, row).shape.as_list() == [None, 2]
    assert tf.equal(tf.placeholder(tf.string, [None]), rows).shape.as_list() == [None, 2]
    assert tf.equal(tf.placeholder(tf.string, [None, 3, 1]), rows).shape.as_list() == [None, 3, 2]
    with pytest.raises(ValueError, match="whose shapes do not fit"):
        tf.equal(row, ["a", "b", "c"])
    with pytest.raises(TypeError, match=r"expected a tensor of dtype string .* dtype=float32"):
        tf.not_equal(row, tf.constant(1.0))
    compared = tf.equal(unknown, row)
    refused = pytest.raises(tf.errors.InvalidArgumentError, match=r"\[3\] vs. \[1, 2\]")
    with tf.Session() as session, refused:
        session.run(compared, {unknown: ["a", "b", "c"]})
