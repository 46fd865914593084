"""What elements may be made of, and what is refused before anything is lost."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from tests.client.queues.helpers import session
from tests.clusters import Backend

VALUES: dict[str, Any] = {
    "bool": np.array([True, False]),
    "int8": np.array([-128, 127], np.int8),
    "uint32": np.array([0, 2**32 - 1], np.uint32),
    "float16": np.array([1.5, np.inf], np.float16),
    "float32": np.array([np.nan, -0.0], np.float32),
    "complex64": np.array([1 + 2j, -1j], np.complex64),
    "bfloat16": np.array([1.5, -2.0], jnp.bfloat16),
    "float8": np.array([1.5, -2.0], jnp.float8_e4m3fn),
    "int4": np.array([-8, 7], jnp.int4),
    "string": np.array([b"\0\xff", b""], object),
    "empty": np.zeros((0, 3), np.float32),
}
Pair = namedtuple("Pair", "left right")


def dtype_of(value: Any) -> Any:
    return tf.string if value.dtype == object else value.dtype


@pytest.mark.parametrize("shape", ["known", "unknown", "some"])
@pytest.mark.parametrize("kind", VALUES)
def test_values_of_every_type_come_back_bit_for_bit(
    backend: Backend, kind: str, shape: str
) -> None:
    value = VALUES[kind]
    shapes = {"known": [value.shape], "unknown": None, "some": [(None, *value.shape[1:])]}[shape]
    queue = tf.FIFOQueue(10, [dtype_of(value)], shapes)
    fed = tf.placeholder(dtype_of(value), value.shape)
    constant, enqueue = queue.enqueue(value), queue.enqueue(fed)
    dequeue = queue.dequeue()
    with session(backend) as sess:
        sess.run(constant)
        sess.run(enqueue, {fed: value})
        for _ in range(2):
            found = sess.run(dequeue)
            assert found.dtype == value.dtype
            assert found.shape == value.shape
            assert found.tolist() == value.tolist() or found.tobytes() == value.tobytes()


def test_64_bit_values_are_elements_without_the_64_bit_types_of_jax(backend: Backend) -> None:
    wide = {
        "int64": np.array([-(2**63), 2**63 - 1]),
        "uint64": np.array([2**64 - 1, 0], np.uint64),
        "float64": np.array([0.1, 1e300]),
        "complex128": np.array([0.1 + 1e300j, 0]),
    }
    dtypes = {name: value.dtype for name, value in wide.items()}
    queue = tf.FIFOQueue(10, dtypes, dict.fromkeys(wide, ()))
    enqueue, dequeue, batch = queue.enqueue_many(wide), queue.dequeue(), queue.dequeue_many(2)
    narrow = tf.cast(dequeue["float64"], tf.float32) + 1
    with pytest.raises(TypeError, match=r"64-bit types.*jflow\.cast"):
        tf.numpy.add(dequeue["int64"], 1)
    with session(backend) as sess:
        sess.run([enqueue])
        found = sess.run(batch)
        assert {name: value.dtype for name, value in found.items()} == dtypes
        assert all(found[name].tobytes() == wide[name].tobytes() for name in wide)
        sess.run([enqueue])
        np.testing.assert_allclose(sess.run(narrow), 1.1, rtol=1e-6)


def test_random_keys_are_elements_too(backend: Backend) -> None:
    keys = jax.random.split(jax.random.key(3), 4)
    queue = tf.FIFOQueue(10, [keys.dtype], [()])
    fed = tf.placeholder(keys.dtype, (4,))
    enqueue = queue.enqueue_many(fed)
    drawn = tf.random.uniform(queue.dequeue(), (3,))
    with session(backend) as sess:
        sess.run(enqueue, {fed: keys})
        np.testing.assert_array_equal(sess.run(drawn), jax.random.uniform(keys[0], (3,)))
        rest = sess.run(queue.dequeue_many(3))
        assert rest.dtype == keys.dtype
        assert (rest == keys[1:]).all()


@pytest.mark.parametrize(
    ("dtypes", "shapes", "names", "element"),
    [
        (tf.int32, (), None, 3),
        ([tf.int32], [()], None, 3),
        ([tf.int32, tf.string], [(), ()], None, [3, b"x"]),
        ([tf.int32, tf.string], [(), ()], ["n", "s"], {"n": 3, "s": b"x"}),
        ({"n": tf.int32, "s": tf.string}, {"n": (), "s": ()}, None, {"n": 3, "s": b"x"}),
        ({"a": {"b": tf.int32}, "c": [tf.int32]}, None, None, {"a": {"b": 1}, "c": [2]}),
        (Pair(tf.int32, (tf.int32, tf.int32)), None, None, Pair(1, (2, 3))),
    ],
    ids=["one", "list of one", "list", "names", "dict", "nested", "namedtuple"],
)
def test_elements_come_back_in_the_structure_of_the_dtypes(
    backend: Backend, dtypes: Any, shapes: Any, names: Any, element: Any
) -> None:
    queue = tf.FIFOQueue(10, dtypes, shapes, names=names)
    enqueue, dequeue = queue.enqueue(element), queue.dequeue()
    assert jax.tree.structure(dequeue) == jax.tree.structure(element)
    with session(backend) as sess:
        sess.run(enqueue)
        found = sess.run(dequeue)
        assert found == element
        assert type(found) is type(element) or np.isscalar(element)
        if shapes is not None:
            batch = jax.tree.map(lambda value: [value, value], element)
            sess.run(queue.enqueue_many(batch))
            many = sess.run(queue.dequeue_many(2))
            assert jax.tree.map(lambda value: value.tolist(), many) == batch


def test_a_batch_is_cut_into_rows_and_put_together_again(backend: Backend) -> None:
    queue = tf.FIFOQueue(10, [tf.float32, tf.string], [(2, 3), (2,)])
    numbers = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    words = [["a", "b"], ["", "c"], ["d", "e"], ["f", "\N{SNOWMAN}"]]
    with session(backend) as sess:
        sess.run(queue.enqueue_many([numbers, words]))
        first, texts = sess.run(queue.dequeue())
        np.testing.assert_array_equal(first, numbers[0])
        assert texts.tolist() == [b"a", b"b"]
        rest, texts = sess.run(queue.dequeue_many(3))
        np.testing.assert_array_equal(rest, numbers[1:])
        assert texts[-1].tolist() == [b"f", "\N{SNOWMAN}".encode()]


def test_what_was_enqueued_does_not_change_with_what_it_was_made_of(backend: Backend) -> None:
    queue = tf.FIFOQueue(10, [tf.float32], [(4,)])
    x = tf.Variable(np.zeros(4, np.float32), name="x")
    fed = tf.placeholder(tf.float32, (4,))
    of_x, of_fed = queue.enqueue(x), queue.enqueue(fed)
    given = np.ones(4, np.float32)
    with session(backend) as sess:
        sess.run(x.initializer)
        sess.run([of_x, of_fed], {fed: given})
        given[:] = 9
        sess.run(x.assign_add(np.full(4, 5, np.float32)))
        found = sorted(sess.run(queue.dequeue_many(2)).tolist())
        assert found == [[0] * 4, [1] * 4]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (1.5, TypeError),
        ("x", TypeError),
        (2**40, TypeError),
        ([1, 2], ValueError),
        ([1, 2, 3, 4], ValueError),
        (np.zeros((3, 1), np.int32), ValueError),
        (7, ValueError),
    ],
    ids=str,
)
def test_an_element_of_another_type_or_shape_is_refused_at_once(
    value: Any, error: type[Exception]
) -> None:
    queue = tf.FIFOQueue(10, [tf.int32], [(3,)])
    with pytest.raises(error):
        queue.enqueue(value)


def test_errors_of_typing_say_what_was_expected_and_what_came() -> None:
    queue = tf.FIFOQueue(10, [tf.int32], [(3,)], name="q")
    with pytest.raises(TypeError, match=r"'q'.*expected dtype int32, got.*'x:0'.*float32"):
        queue.enqueue(tf.placeholder(tf.float32, (3,), name="x"))
    with pytest.raises(ValueError, match=r"an element of shape \(3,\).*'q'.*got \(2,\)"):
        queue.enqueue(tf.placeholder(tf.int32, (2,)))
    with pytest.raises(ValueError, match=r"a batch of shape \(None, 3\).*'q'.*got \(3,\)"):
        queue.enqueue_many(tf.placeholder(tf.int32, (3,)))
    two = tf.FIFOQueue(10, [tf.int32, tf.int32], name="two")
    with pytest.raises(ValueError, match="a sequence of 2 components"):
        two.enqueue([1, 2, 3])
    named = tf.FIFOQueue(10, [tf.int32, tf.int32], names=["a", "b"])
    for wrong in ([1, 2], {"a": 1}, {"a": 1, "b": 2, "c": 3}):
        with pytest.raises(ValueError, match=r"expected a dict of \['a', 'b'\], got"):
            named.enqueue(wrong)
    tree = tf.FIFOQueue(10, {"a": tf.int32})
    with pytest.raises(ValueError, match="an element like"):
        tree.enqueue({"b": 1})


def test_the_sizes_of_a_value_are_checked_when_they_are_known(backend: Backend) -> None:
    queue = tf.FIFOQueue(10, [tf.int32, tf.float32], [(), (3,)])
    fed = tf.placeholder(tf.float32, (None,))
    any_rank = tf.placeholder(tf.float32)
    ones = queue.enqueue([1, fed]), queue.enqueue([1, any_rank])
    many = queue.enqueue_many([[1, 2], any_rank])
    with session(backend) as sess:
        for enqueue, placeholder in zip(ones, (fed, any_rank), strict=True):
            with pytest.raises(
                tf.errors.InvalidArgumentError,
                match=r"Shape mismatch in tuple component 1.*Expected \(3,\), got \(2,\)",
            ):
                sess.run(enqueue, {placeholder: [1.0, 2.0]})
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"Shape mismatch in tuple component 1.*Expected \(None, 3\), got \(3,\)",
        ):
            sess.run(many, {any_rank: [1.0, 2.0, 3.0]})
        assert sess.run(queue.size()) == 0
        sess.run(ones[0], {fed: np.ones(3)})
        sess.run(many, {any_rank: np.ones((2, 3))})
        assert sess.run(queue.size()) == 3


BAD_QUEUES: dict[str, tuple[Any, ...]] = {
    "no dtype": (10, []),
    "capacity of text": ("10", [tf.int32]),
    "capacity of a float": (1.5, [tf.int32]),
    "capacity of a boolean": (True, [tf.int32]),
    "capacity of None": (None, [tf.int32]),
    "dtype": (10, ["nonsense"]),
    "object dtype": (10, [object]),
    "number of shapes": (10, [tf.int32], [(), ()]),
    "shape": (10, [tf.int32], [("x",)]),
    "negative size": (10, [tf.int32], [(-3,)]),
    "number of names": (10, [tf.int32], None, ["a", "b"]),
    "equal names": (10, [tf.int32, tf.int32], None, ["a", "a"]),
    "names of a dict": (10, {"a": tf.int32}, None, ["a"]),
    "numbers as names": (10, [tf.int32], None, [1]),
    "shared name": (10, [tf.int32], None, None, "_q"),
    "empty shared name": (10, [tf.int32], None, None, ""),
    "number as shared name": (10, [tf.int32], None, None, 3),
    "name": (10, [tf.int32], None, None, None, "a b"),
}


@pytest.mark.parametrize("bad", BAD_QUEUES)
def test_a_queue_that_cannot_be_is_refused_when_it_is_made(bad: str) -> None:
    graph = tf.get_default_graph()
    with pytest.raises((ValueError, TypeError, tf.errors.InvalidArgumentError)):
        tf.FIFOQueue(*BAD_QUEUES[bad])
    assert graph.is_empty


@pytest.mark.parametrize(
    "options",
    [{"min_after_dequeue": 1.5}, {"min_after_dequeue": None}, {"seed": "x"}, {"seed": 0.5}],
    ids=str,
)
def test_a_shuffle_queue_s_numbers_are_integers(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, tf.errors.InvalidArgumentError)):
        tf.RandomShuffleQueue(10, **({"min_after_dequeue": 0} | options), dtypes=[tf.int32])


@pytest.mark.parametrize("n_bytes", [0, -1, 1.5, "1"])
def test_a_bound_on_memory_is_a_positive_integer(n_bytes: Any) -> None:
    with pytest.raises((ValueError, TypeError, tf.errors.InvalidArgumentError)):
        tf.FIFOQueue(10, [tf.int32], capacity_bytes=n_bytes)


def test_numbers_of_numpy_are_numbers(backend: Backend) -> None:
    queue = tf.RandomShuffleQueue(
        np.int64(10), np.int32(0), [tf.int32], [(np.int64(2),)], seed=np.int64(3), shared_name="q"
    )
    same = tf.RandomShuffleQueue(10, 0, [tf.int32], [(2,)], seed=3, shared_name="q")
    with session(backend) as sess:
        sess.run(queue.enqueue([1, 2]))
        assert sess.run(same.dequeue_many(np.int64(1))).tolist() == [[1, 2]]


@pytest.mark.parametrize("n", [-1, 1.5, "3", None, True, [2]], ids=str)
def test_how_many_to_dequeue_is_a_number(n: Any) -> None:
    queue = tf.FIFOQueue(10, [tf.int32], [()])
    for dequeue in (queue.dequeue_many, queue.dequeue_up_to):
        with pytest.raises((ValueError, TypeError)):
            dequeue(n)


def test_a_tensor_of_how_many_to_dequeue_is_an_integer() -> None:
    queue = tf.FIFOQueue(10, [tf.int32], [()])
    for dtype, shape in ((tf.float32, ()), (tf.int32, (2,)), (tf.string, ()), (tf.bool, ())):
        with pytest.raises((ValueError, TypeError), match="number of elements to dequeue"):
            queue.dequeue_many(tf.placeholder(dtype, shape))


def test_elements_without_shapes_cannot_be_stacked(backend: Backend) -> None:
    for queue in (tf.FIFOQueue(10, [tf.int32]), tf.FIFOQueue(10, [tf.int32], [(None,)])):
        for dequeue in (queue.dequeue_many, queue.dequeue_up_to):
            with pytest.raises(ValueError, match="cannot be stacked; pass shapes="):
                dequeue(2)


def test_a_queue_says_what_its_elements_are() -> None:
    queue = tf.FIFOQueue(10, [tf.int32, tf.string], [(None, 2), ()], names=["a", "b"], name="q")
    assert queue.dtypes == [np.dtype("int32"), tf.string]
    assert queue.shapes == [(None, 2), ()]
    assert queue.names == ["a", "b"]
    assert queue.name == "q"
    assert not queue.is_eager
    assert tf.FIFOQueue(10, [tf.int32]).shapes == [None]
    assert tf.FIFOQueue(10, [tf.int32], shared_name="s").name == "s"
