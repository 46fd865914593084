"""Queues in plain Python: they work at once, here and on a cluster."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from tests.client.queues.helpers import PATIENCE_S, got, started, wait_until
from tests.clusters import Backend

SHORT_S = 0.15
CONFIG = tf.ConfigProto(operation_timeout_in_ms=int(PATIENCE_S * 1000))


@pytest.fixture
def connection(backend: Backend) -> Iterator[tf.Connection]:
    with tf.connect(backend.targets[0], CONFIG) as connection:
        yield connection


pytestmark = pytest.mark.usefixtures("connection")


def pairs() -> tf.FIFOQueue:
    return tf.FIFOQueue(10, [tf.float32, tf.string], [(2,), ()])


def drained(queue: tf.QueueBase) -> list[Any]:
    """All that is in a queue; it is empty afterwards."""
    return [queue.get() for _ in range(int(queue.size()))]


VALUES: dict[str, tuple[Any, Any]] = {
    "number": (tf.float32, 1.5),
    "list": (tf.int32, [[1, 2], [3, 4]]),
    "numpy": (tf.float32, np.arange(6, dtype=np.float32).reshape(2, 3)),
    "jax": (tf.float32, jnp.arange(4.0)),
    "bfloat16": (tf.bfloat16, jnp.array([1.5, -2.0], jnp.bfloat16)),
    "int4": (jnp.int4, jnp.array([-8, 7], jnp.int4)),
    "bool": (tf.bool, np.array([True, False])),
    "complex": (tf.complex64, 1 - 2j),
    "empty": (tf.float32, np.zeros((0, 2), np.float32)),
    "big": (tf.float32, np.arange(300_000, dtype=np.float32)),
}


@pytest.mark.parametrize("kind", VALUES)
def test_what_is_put_can_be_got(kind: str) -> None:
    dtype, value = VALUES[kind]
    queue = tf.FIFOQueue(10, [dtype])
    for _ in range(2):
        queue.put(value)
        found = queue.get(PATIENCE_S)
        assert found.dtype == dtype
        assert isinstance(found, np.ndarray | np.generic)
        np.testing.assert_array_equal(found, np.asarray(value))


@pytest.mark.parametrize("value", ["text \N{SNOWMAN}", b"\0\xff", ""])
def test_text_and_bytes_come_back_as_bytes(value: str | bytes) -> None:
    queue = tf.FIFOQueue(10, tf.string, ())
    queue.put(value)
    found = queue.get(PATIENCE_S)
    assert found == (value.encode() if isinstance(value, str) else value)
    assert isinstance(found, bytes)


def test_random_keys_come_back_as_keys() -> None:
    key = jax.random.key(7)
    queue = tf.FIFOQueue(10, key.dtype, ())
    queue.put(key)
    found = queue.get(PATIENCE_S)
    assert found.dtype == key.dtype
    assert jax.random.uniform(found) == jax.random.uniform(key)


@pytest.mark.parametrize(
    ("dtypes", "names", "element"),
    [
        ([tf.int32, tf.string], None, [1, b"x"]),
        ([tf.int32, tf.string], ["n", "s"], {"n": 1, "s": b"x"}),
        ({"n": tf.int32, "deep": {"s": [tf.string]}}, None, {"n": 1, "deep": {"s": [b"x"]}}),
        ((tf.int32, {"s": tf.string}), None, (1, {"s": b"x"})),
    ],
    ids=["list", "names", "dict", "tuple"],
)
def test_elements_keep_their_structure(dtypes: Any, names: Any, element: Any) -> None:
    queue = tf.FIFOQueue(10, dtypes, names=names)
    queue.put(element)
    assert queue.get(PATIENCE_S) == element


def test_many_elements_at_once() -> None:
    queue = pairs()
    numbers = np.arange(10, dtype=np.float32).reshape(5, 2)
    queue.put_many([numbers, ["a", "b", "c", "d", "e"]])
    first, letters = queue.get_many(2)
    np.testing.assert_array_equal(first, numbers[:2])
    assert letters.tolist() == [b"a", b"b"]
    rest, letters = queue.get_up_to(10)
    np.testing.assert_array_equal(rest, numbers[2:])
    assert letters.tolist() == [b"c", b"d", b"e"]
    queue.put_many([numbers[:0], []])
    assert [part.shape for part in queue.get_many(0)] == [(0, 2), (0,)]


def test_get_up_to_waits_for_its_minimum_and_takes_all_there_is() -> None:
    queue = tf.FIFOQueue(10, tf.int32, ())
    queue.put_many([1, 2])
    waiting = started(queue.get_up_to, 5, 3)
    queue.put(3)
    assert got(waiting).tolist() == [1, 2, 3]
    with pytest.raises(tf.errors.DeadlineExceededError):
        queue.get_up_to(5, timeout=SHORT_S)
    queue.put_many([4, 5, 6])
    assert queue.get_up_to(2).tolist() == [4, 5]


def test_an_eager_queue_can_be_closed_and_asked() -> None:
    queue = tf.FIFOQueue(3, tf.int32, ())
    entering = started(queue.put_many, [1, 2, 3, 4])
    assert queue.get() == 1
    assert got(entering) is None
    assert (queue.size(), queue.is_closed()) == (3, False)
    entering = started(queue.put, 5)
    with pytest.raises(tf.errors.DeadlineExceededError):
        queue.put(6, SHORT_S)
    queue.close(cancel_pending_enqueues=True)
    with pytest.raises(tf.errors.CancelledError, match="Enqueue operation was cancelled"):
        got(entering)
    assert queue.is_closed()
    with pytest.raises(tf.errors.CancelledError, match="already closed"):
        queue.close()
    with pytest.raises(tf.errors.CancelledError, match="is closed"):
        queue.put(7)
    with pytest.raises(tf.errors.OutOfRangeError, match=r"requested 5, current size 3"):
        queue.get_many(5)
    assert queue.get_up_to(5).tolist() == [2, 3, 4]
    for get in (queue.get, lambda: queue.get_up_to(2)):
        with pytest.raises(tf.errors.OutOfRangeError, match="current size 0"):
            get()


def test_a_timeout_names_the_operation_and_the_queue() -> None:
    empty = tf.FIFOQueue(3, tf.int32, (), name="empty")
    full = tf.FIFOQueue(1, tf.int32, (), name="full")
    full.put(1)
    calls: dict[str, Callable[[], Any]] = {
        r"get on <jflow.FIFOQueue eager 'empty'": lambda: empty.get(SHORT_S),
        r"get_many on <jflow.FIFOQueue eager 'empty'": lambda: empty.get_many(2, SHORT_S),
        r"get_up_to on <jflow.FIFOQueue eager 'empty'": lambda: empty.get_up_to(2, 1, SHORT_S),
        r"put on <jflow.FIFOQueue eager 'full'": lambda: full.put(2, SHORT_S),
        r"put_many on <jflow.FIFOQueue eager 'full'": lambda: full.put_many([2, 3], SHORT_S),
        r"get on <jflow.FIFOQueue eager 'empty' .*": lambda: asyncio.run(empty.get_async(SHORT_S)),
        r"put on <jflow.FIFOQueue eager 'full' .*": lambda: asyncio.run(full.put_async(2, SHORT_S)),
    }
    for said, call in calls.items():
        with pytest.raises(tf.errors.DeadlineExceededError, match=rf"^{said}") as caught:
            call()
        assert "150 ms" in str(caught.value)
        assert caught.value.message == str(caught.value)


@pytest.mark.parametrize(("n", "minimum"), [(3, 0), (3, 4), (3, -1)])
def test_a_minimum_is_between_one_and_the_number(n: int, minimum: int) -> None:
    queue = tf.FIFOQueue(10, tf.int32, ())
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"expected a minimum of 1 to {n}"):
        queue.get_up_to(n, minimum)


def test_a_loop_takes_all_until_the_queue_is_closed() -> None:
    queue = tf.FIFOQueue(2, tf.int32, ())
    taken = started(lambda: [int(element) for element in queue])
    for number in range(6):
        queue.put(number)
    queue.close()
    assert got(taken) == [*range(6)]


def test_kinds_of_queues_work_eagerly_too() -> None:
    shuffled = tf.RandomShuffleQueue(10, 0, tf.int32, ())
    shuffled.put_many([*range(10)])
    assert sorted(shuffled.get_many(10)) == [*range(10)]
    padding = tf.PaddingFIFOQueue(10, tf.int32, (None,))
    padding.put([1])
    padding.put([1, 2])
    assert padding.get_many(2).tolist() == [[1, 0], [1, 2]]
    by_priority = tf.PriorityQueue(10, tf.string, [()])
    for priority in (2**40, -(2**50), 3):
        by_priority.put([priority, str(priority)])
    assert [by_priority.get()[1] for _ in range(3)] == [
        b"-1125899906842624",
        b"3",
        b"1099511627776",
    ]


def test_a_get_that_timed_out_takes_nothing_later() -> None:
    queue = tf.FIFOQueue(1, tf.int32, ())
    for _ in range(2):
        with pytest.raises(tf.errors.DeadlineExceededError):
            queue.get(SHORT_S)
    queue.put(1)
    with pytest.raises(tf.errors.DeadlineExceededError):
        queue.put(2, SHORT_S)
    with pytest.raises(tf.errors.DeadlineExceededError):
        queue.get_many(2, SHORT_S)
    assert queue.get() == 1
    assert drained(queue) == []


def test_async_gets_and_puts_meet() -> None:
    queue = tf.FIFOQueue(3, tf.int32, ())

    async def main() -> list[Any]:
        gets = [asyncio.ensure_future(queue.get_async()) for _ in range(10)]
        await asyncio.gather(*(queue.put_async(number) for number in range(10)))
        return await asyncio.gather(*gets)

    assert sorted(asyncio.run(main())) == [*range(10)]


def test_an_async_get_can_time_out_and_can_be_cancelled() -> None:
    queue = tf.FIFOQueue(10, tf.int32, ())

    async def main() -> None:
        with pytest.raises(tf.errors.DeadlineExceededError):
            await queue.get_async(SHORT_S)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(queue.get_async(), SHORT_S)
        await queue.put_async(1)
        assert await queue.get_async(PATIENCE_S) == 1

    asyncio.run(main())


def test_an_async_put_that_is_cancelled_does_not_enter() -> None:
    queue = tf.FIFOQueue(1, tf.int32, ())

    async def main() -> None:
        await queue.put_async(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.put_async(2), SHORT_S)

    asyncio.run(main())
    assert drained(queue) == [1]


def test_ctrl_c_in_a_waiting_get_leaves_the_connection_usable() -> None:
    queue = tf.FIFOQueue(10, tf.int32, ())
    queue.put_many([1, 2])
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def once_it_waits() -> None:
        wait_until(lambda: queue.size() == 0)  # it has taken both, and waits for a third one
        signal.pthread_kill(main_thread, signal.SIGINT)

    interrupt = threading.Thread(target=once_it_waits)
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        queue.get_many(3)
    interrupt.join()
    queue.put(3)
    assert queue.get_many(3, PATIENCE_S).tolist() == [1, 2, 3]


USES: dict[str, Callable[[tf.FIFOQueue], Any]] = {
    "put": lambda queue: queue.put(1),
    "get": lambda queue: queue.get(),
    "put_many": lambda queue: queue.put_many([1]),
    "get_up_to": lambda queue: queue.get_up_to(3),
    "put_async": lambda queue: asyncio.run(queue.put_async(1)),
    "get_async": lambda queue: asyncio.run(queue.get_async()),
    "loop": lambda queue: next(iter(queue)),
}


@pytest.mark.parametrize("use", USES)
def test_after_the_connection_is_closed_a_queue_says_so(backend: Backend, use: str) -> None:
    with tf.connect(backend.targets[0], CONFIG):
        fresh, used = tf.FIFOQueue(10, tf.int32, ()), tf.FIFOQueue(10, tf.int32, ())
        used.put_many([1, 2, 3])
        USES[use](used)
    for queue in (fresh, used):
        with pytest.raises((RuntimeError, tf.errors.CancelledError), match="closed"):
            USES[use](queue)


def test_closing_the_connection_ends_a_get_that_waits(backend: Backend) -> None:
    with tf.connect(backend.targets[0], CONFIG) as connection:
        queue = tf.FIFOQueue(10, tf.int32, ())
        queue.put_many([1])
        waiting = started(queue.get_many, 2)
        wait_until(lambda: queue.size() == 0)
        connection.close()
        with pytest.raises(tf.errors.CancelledError):
            got(waiting)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ([1.0], ValueError),
        ([[1.0, 2.0], "x", 3], ValueError),
        ([[1.0, 2.0, 3.0], "x"], ValueError),
        ([[1j, 2.0], "x"], TypeError),
        ([[1.0, 2.0], 3], TypeError),
        ({"a": 1}, ValueError),
        (None, ValueError),
    ],
    ids=str,
)
def test_a_wrong_element_is_refused_and_nothing_is_lost(value: Any, error: type[Exception]) -> None:
    queue = pairs()
    queue.put([[1.0, 2.0], "x"])
    for put in (queue.put, lambda value: asyncio.run(queue.put_async(value))):
        with pytest.raises(error):
            put(value)
    assert queue.get()[0].tolist() == [1, 2]
    assert drained(queue) == []


def test_batches_must_be_equally_long() -> None:
    queue = pairs()
    with pytest.raises(ValueError, match="same number of rows"):
        queue.put_many([np.zeros((3, 2)), ["a", "b"]])
    assert drained(queue) == []


@pytest.mark.parametrize("n", [-1, 1.5, None, "2", True], ids=str)
def test_how_many_to_get_is_a_number(n: Any) -> None:
    queue = tf.FIFOQueue(10, tf.int32, ())
    for get in (queue.get_many, queue.get_up_to):
        with pytest.raises((ValueError, TypeError)):
            get(n)


def test_elements_stay_when_the_function_that_put_them_is_gone() -> None:
    queue = tf.FIFOQueue(10, tf.int32, ())

    @tf.function
    def put(value: Any) -> None:
        queue.enqueue(value)

    put(np.int32(1))
    del put
    gc.collect()
    others = tf.FIFOQueue(10, tf.int32, (), shared_name="others")
    for number in range(10):  # the connection has its say meanwhile
        others.put(number)
    assert drained(queue) == [1]


def test_connections_share_what_has_a_shared_name(cluster: Backend) -> None:
    queue = tf.FIFOQueue(10, tf.int32, (), shared_name="q")
    with tf.connect(cluster.targets[-1], CONFIG):
        same = tf.FIFOQueue(10, tf.int32, (), shared_name="q")
        waiting = started(queue.get)
        same.put(5)
        assert got(waiting) == 5
        own = tf.FIFOQueue(10, tf.int32, ())
        own.put(6)
        queue.put(7)
    assert drained(queue) == [7]


def test_graph_code_and_plain_python_meet(cluster: Backend) -> None:
    eager = tf.FIFOQueue(10, tf.int32, (), shared_name="q")
    with tf.Graph().as_default() as graph:
        queue = tf.FIFOQueue(10, [tf.int32], [()], shared_name="q")
        assert not queue.is_eager
        doubled = queue.enqueue(queue.dequeue() * 2)
        with pytest.raises(RuntimeError, match="this is graph code: run the operation in a"):
            queue.put(1)
    assert eager.is_eager
    eager.put(21)
    with tf.Session(cluster.targets[0], graph=graph, config=CONFIG) as session:
        session.run(doubled)
    assert eager.get() == 42


def test_a_queue_of_another_kind_is_refused_and_unharmed(cluster: Backend) -> None:
    queue = tf.FIFOQueue(10, tf.int32, (), shared_name="q")
    queue.put(1)
    wrong = tf.FIFOQueue(10, tf.float32, (), shared_name="q")
    for use in (wrong.get, lambda: wrong.put(1.0)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="another component types"):
            use()
    assert drained(queue) == [1]


def test_threads_of_one_connection_share_a_queue() -> None:
    queue = tf.FIFOQueue(2, tf.int32, ())
    n_threads, n_each = 4, 20

    def produce(thread: int) -> None:
        for i in range(n_each):
            queue.put(thread * n_each + i)

    producers = [started(produce, thread) for thread in range(n_threads)]
    consumers = [started(lambda: [queue.get() for _ in range(n_each)]) for _ in range(n_threads)]
    for producer in producers:
        got(producer)
    taken = [int(number) for consumer in consumers for number in got(consumer)]
    assert sorted(taken) == [*range(n_threads * n_each)]
