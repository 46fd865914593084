"""Batches of elements that background threads compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jflow as tf
from tests.clusters import in_process
from tests.training.input_queues.feeding import columns, drained, feeding


def numbers(n: int, start: int = 0) -> Any:
    """A tensor that counts from `start` in `n` steps; further steps fail at the end of the data."""
    count = tf.Variable(np.int32(0), trainable=False, collections=["local_variables"])
    return tf.count_up_to(count, n) + np.int32(start)


def words(n: int, text: str = "abcdefghij") -> Any:
    """A string that differs in each of `n` steps; further steps fail at the end of the data."""
    return tf.train.string_input_producer([*text[:n]], 1, shuffle=False).dequeue()


def test_elements_are_stacked_and_a_remainder_is_dropped() -> None:
    x = numbers(5)
    batch = tf.train.batch([x, tf.numpy.stack([x, x * 10])], 2)
    assert [tensor.shape for tensor in batch] == [(2,), (2, 2)]
    with feeding() as session:
        found = [[a.tolist(), b.tolist()] for a, b in drained(session, batch)]
    assert found == [[[0, 1], [[0, 0], [1, 10]]], [[2, 3], [[2, 20], [3, 30]]]]


def test_a_smaller_final_batch_is_given_if_allowed() -> None:
    x = numbers(5)
    batch = tf.train.batch([x], 2, allow_smaller_final_batch=True)
    assert not isinstance(batch.shape[0], int)
    total = tf.numpy.sum(batch)
    with feeding() as session:
        found = drained(session, [batch, total])
    assert [(b.tolist(), int(t)) for b, t in found] == [([0, 1], 1), ([2, 3], 5), ([4], 4)]


def test_integers_of_64_bits_are_batched_without_the_64_bit_types_of_jax() -> None:
    records = [tf.data.encode_example({"label": 2**40 + i}) for i in range(4)]
    record = tf.train.string_input_producer(records, 1, shuffle=False).dequeue()
    label = tf.parse_single_example(record, {"label": tf.FixedLenFeature([], tf.int64)})["label"]
    batch = tf.train.batch([label], 2)
    assert (batch.dtype, batch.shape) == (np.int64, (2,))
    narrow = tf.cast(batch, tf.int32)
    with in_process() as backend:
        target = backend.targets[0]
        for where in ("", target):
            with feeding(where) as session:
                found = drained(session, [batch, narrow])
            assert [b.tolist() for b, _ in found] == [[2**40, 2**40 + 1], [2**40 + 2, 2**40 + 3]]
            assert found[0][0].dtype == np.int64


def test_a_single_tensor_is_an_element() -> None:
    for element in (numbers(2), [numbers(2)], (numbers(2),)):
        assert isinstance(tf.train.batch(element, 2), tf.Tensor)


def test_dicts_keep_their_keys() -> None:
    batch = tf.train.batch({"word": words(4), "number": numbers(4)}, 2)
    only = tf.train.batch({"one": numbers(2, 7)}, 2)
    assert {key: tensor.dtype.name for key, tensor in batch.items()} == {
        "word": "string",
        "number": "int32",
    }
    with feeding() as session:
        found = session.run(batch)
        assert found["word"].tolist() == [b"a", b"b"]
        assert found["number"].tolist() == [0, 1]
        assert session.run(only)["one"].tolist() == [7, 8]


def test_rows_of_batches_are_elements_too() -> None:
    x = numbers(3) * 3 + np.arange(3, dtype=np.int32)
    names = tf.train.batch([x, tf.constant(["p", "q", "r"])], 4, enqueue_many=True)
    with feeding() as session:
        found = [[a.tolist(), b.tolist()] for a, b in drained(session, names)]
    assert found == [
        [[0, 1, 2, 3], [b"p", b"q", b"r", b"p"]],
        [[4, 5, 6, 7], [b"q", b"r", b"p", b"q"]],
    ]


def test_elements_of_different_sizes_are_padded() -> None:
    rows = tf.FIFOQueue(10, ["int32", "string"], [[None], [None]])
    element = rows.dequeue()
    batch = tf.train.batch(element, 2, dynamic_pad=True)
    with feeding() as session:
        for n in (1, 3, 2, 2):
            session.run(rows.enqueue([np.arange(1, n + 1, dtype=np.int32), ["x"] * n]))
        session.run(rows.close())
        found = [[a.tolist(), b.tolist()] for a, b in drained(session, batch)]
    assert found == [
        [[[1, 0, 0], [1, 2, 3]], [[b"x", b"", b""], [b"x", b"x", b"x"]]],
        [[[1, 2], [1, 2]], [[b"x", b"x"], [b"x", b"x"]]],
    ]


def test_many_threads_lose_nothing() -> None:
    batch = tf.train.batch([numbers(40)], 7, num_threads=4, allow_smaller_final_batch=True)
    assert len(tf.get_default_graph().get_collection("queue_runners")[0].enqueue_ops) == 4
    with feeding() as session:
        found = np.concatenate(drained(session, batch))
    assert sorted(found.tolist()) == [*range(40)]


def test_joined_sources_come_together() -> None:
    sources = [[numbers(5, 100), words(5)], [numbers(4, 200), words(4, "wxyz")]]
    batch = tf.train.batch_join(sources, 3)
    with feeding() as session:
        found = [pair for x, y in drained(session, batch) for pair in zip(x, y, strict=True)]
    wanted = {*zip(range(100, 105), [b"a", b"b", b"c", b"d", b"e"], strict=True)} | {
        *zip(range(200, 204), [b"w", b"x", b"y", b"z"], strict=True)
    }
    assert len(found) == 9
    assert set(found) == wanted
    # Each source keeps its own order.
    for start in (100, 200):
        own = [x for x, _ in found if start <= x < start + 100]
        assert own == sorted(own)


def test_joined_sources_may_differ_in_size() -> None:
    x, y = numbers(1), numbers(1)
    sources = [[tf.numpy.stack([x, x])], [tf.numpy.stack([y, y, y])]]
    with pytest.raises(ValueError, match="dynamic_pad"):
        tf.train.batch_join(sources, 2)
    batch = tf.train.batch_join(sources, 1, dynamic_pad=True)
    with feeding() as session:
        assert sorted(len(row) for (row,) in drained(session, batch)) == [2, 3]


def test_shuffled_elements_come_in_an_order_of_chance() -> None:
    def order(seed: int) -> list[int]:
        with tf.Graph().as_default():
            x = numbers(40)
            batch = tf.train.shuffle_batch([x], 5, capacity=40, min_after_dequeue=20, seed=seed)
            with feeding() as session:
                return np.concatenate(drained(session, batch)).tolist()

    found = order(1)
    assert sorted(found) == [*range(40)]
    assert found != sorted(found)


def test_a_shuffled_join() -> None:
    batch = tf.train.shuffle_batch_join(
        [{"x": numbers(6)}, {"x": numbers(6, 10)}],
        4,
        capacity=12,
        min_after_dequeue=6,
        allow_smaller_final_batch=True,
    )
    with feeding() as session:
        found = [int(x) for part in drained(session, batch) for x in part["x"]]
    assert sorted(found) == [*range(6), *range(10, 16)]


@pytest.mark.parametrize("kind", ["maybe_batch", "maybe_shuffle_batch"])
def test_unwanted_elements_are_left_out(kind: str) -> None:
    x = numbers(9)
    keep = tf.numpy.equal(x % 3, 0)
    if kind == "maybe_batch":
        batch = tf.train.maybe_batch([x, x * 2], keep, 3)
    else:
        batch = tf.train.maybe_shuffle_batch([x, x * 2], 3, 10, 0, keep)
    with feeding() as session:
        ((one, two),) = drained(session, batch)
    assert sorted(one.tolist()) == [0, 3, 6]
    assert two.tolist() == [2 * value for value in one]


@pytest.mark.parametrize("kind", ["maybe_batch_join", "maybe_shuffle_batch_join"])
def test_unwanted_elements_of_several_sources_are_left_out(kind: str) -> None:
    sources = [[words(3)], [words(3, "xyz")]]
    for keep, wanted in ((True, 6), (False, 0)):
        if kind == "maybe_batch_join":
            batch = tf.train.maybe_batch_join(sources, tf.constant(keep), 1)
        else:
            batch = tf.train.maybe_shuffle_batch_join(sources, 1, 10, 0, tf.constant(keep))
        with tf.Session() as session:
            coord = tf.train.Coordinator()
            session.run(tf.local_variables_initializer())
            threads = tf.train.start_queue_runners(session, coord)
            assert len(drained(session, batch)) == wanted
            coord.request_stop()
            coord.join(threads)


def test_each_row_of_a_batch_can_be_wanted_or_not() -> None:
    x = numbers(3) * 4 + np.arange(4, dtype=np.int32)
    y = numbers(3) * 4 + np.arange(4, dtype=np.int32)
    even = tf.train.maybe_batch([x], tf.numpy.equal(x % 2, 0), 3, enqueue_many=True)
    late = tf.train.maybe_batch([y], y[0] > 0, 4, enqueue_many=True)
    with feeding() as session:
        assert columns(drained(session, even)) == [[0, 2, 4], [6, 8, 10]]
        assert columns(drained(session, late)) == [[4, 5, 6, 7], [8, 9, 10, 11]]


def test_one_queue_can_be_shared_by_sessions() -> None:
    with in_process() as backend, tf.Graph().as_default():
        batch = tf.train.batch([numbers(6)], 2, shared_name="batches")
        with backend.session() as other, feeding(backend.targets[0]) as session:
            found = [session.run(batch), other.run(batch), session.run(batch)]
            assert columns(found) == [[0, 1], [2, 3], [4, 5]]
            with pytest.raises(tf.errors.OutOfRangeError):
                other.run(batch)


def test_an_error_in_a_source_is_the_reason_of_the_stop() -> None:
    words_ = tf.placeholder("string", [])
    batch = tf.train.batch([words_], 2)
    with (
        pytest.raises(tf.errors.InvalidArgumentError, match="Placeholder"),
        feeding() as session,
        pytest.raises(tf.errors.OutOfRangeError),
    ):
        session.run(batch)


def test_what_cannot_work_is_refused() -> None:
    x, y = numbers(3), tf.placeholder("float32")
    for nothing in ([], {}):
        with pytest.raises(ValueError, match="at least one tensor"):
            tf.train.batch(nothing, 2)
    with pytest.raises(ValueError, match="at least one tensor"):
        tf.train.batch_join([], 2)
    with pytest.raises(ValueError, match="known rank"):
        tf.train.batch([y], 2)
    with pytest.raises(ValueError, match="known rank"):
        tf.train.batch([x], 2, enqueue_many=True)
    with pytest.raises(ValueError, match="one structure"):
        tf.train.batch_join([[x], [x, x]], 2)
    with pytest.raises(ValueError, match="one structure"):
        tf.train.batch_join([{"a": x}, {"b": x}], 2)
    with pytest.raises(TypeError, match="dtypes"):
        tf.train.batch_join([[x], [words(3)]], 2)
    with pytest.raises(ValueError, match="a shape for each"):
        tf.train.batch([x], 2, shapes=[(), ()])
    with pytest.raises(ValueError, match="known sizes"):
        tf.train.shuffle_batch([tf.placeholder("float32", [None])], 2, 10, 5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="min_after_dequeue"):
        tf.train.shuffle_batch([x], 2, capacity=5, min_after_dequeue=5)
    assert tf.train.batch([y], 2, shapes=[(3,)]).shape == (2, 3)


def test_wishes_must_fit_the_elements() -> None:
    x = numbers(3)
    vector = tf.constant([True, False])
    with pytest.raises(ValueError, match="rank 0 without enqueue_many"):
        tf.train.maybe_batch([x], vector, 2)
    with pytest.raises(ValueError, match="rank 0 or 1"):
        tf.train.maybe_batch([vector], [[True]], 2, enqueue_many=True)
    with pytest.raises(ValueError, match="rank"):
        tf.train.maybe_batch([x], tf.placeholder("bool"), 2)
    with pytest.raises(ValueError, match=r"jflow\.numpy\.equal"):
        tf.train.maybe_batch([x], x == 2, 2)
    with pytest.raises(TypeError, match="booleans"):
        tf.train.maybe_batch([x], x, 2)


def test_rows_and_wishes_must_be_as_many() -> None:
    wanted = tf.placeholder("bool", [None])
    batch = tf.train.maybe_batch([tf.constant([1, 2])], wanted, 2, enqueue_many=True)
    (runner,) = tf.get_default_graph().get_collection("queue_runners")
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="keep_input"):
            session.run(runner.enqueue_ops[0], {wanted: [True]})
        session.run(runner.enqueue_ops[0], {wanted: [True, True]})
        assert session.run(batch).tolist() == [1, 2]


def test_queues_and_slices_refuse_a_sparse_tensor_by_the_line_that_made_it() -> None:
    features = {"v": tf.VarLenFeature("float32")}
    parsed = tf.parse_single_example(words(1), features, name="parsed")
    with pytest.raises(TypeError, match=r"SparseTensor.*'parsed'.*parse_example"):
        tf.train.slice_input_producer([parsed["v"]])
    queue = tf.FIFOQueue(10, [tf.float32])
    for enqueue in (queue.enqueue, queue.enqueue_many):
        with pytest.raises(TypeError, match=r"SparseTensor.*'parsed'.*parse_example"):
            enqueue([parsed["v"]])
