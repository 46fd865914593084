"""What the tests of queues have in common: steps that wait, and how to see that they do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

import jflow as tf
from jflow.testing import PATIENCE_S
from tests.clusters import Backend

SHORT = tf.RunOptions(timeout_in_ms=150)
"""For steps that are to time out."""


def session(backend: Backend, which: int = 0) -> tf.Session:
    """A session in which nothing waits for ever."""
    config = tf.ConfigProto(operation_timeout_in_ms=int(PATIENCE_S * 1000))
    return backend.session(which, config=config)


def started(work: Callable[..., Any], *args: Any) -> Future[Any]:
    """What a call gives that goes on in the background."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work(*args))
        except BaseException as error:  # whatever it is, the test sees it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def got(future: Future[Any]) -> Any:
    """The outcome of what was started."""
    return future.result(PATIENCE_S)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def integers(capacity: int = 10, **options: Any) -> tf.FIFOQueue:
    """A queue of single integers."""
    return tf.FIFOQueue(capacity, [tf.int32], [()], **options)


def row(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int32)


class Driver:
    """A queue of integers and the steps that tests use most, made once."""

    def __init__(self, queue: tf.QueueBase, session: tf.Session) -> None:
        self.queue = queue
        self.session = session
        self._batch = tf.placeholder(queue.dtypes[0], (None, *(queue.shapes[0] or ())))
        self._enqueue = queue.enqueue_many(self._batch)
        self._dequeue = queue.dequeue()
        self._size = queue.size()
        self._is_closed = queue.is_closed()

    def put(self, *values: Any) -> None:
        self.session.run(self._enqueue, {self._batch: list(values)})

    def take(self, n: int = 1) -> list[Any]:
        return [self.session.run(self._dequeue).tolist() for _ in range(n)]

    @property
    def size(self) -> int:
        return int(self.session.run(self._size))

    @property
    def is_closed(self) -> bool:
        return bool(self.session.run(self._is_closed))

    def begin(self, fetch: Any, **options: Any) -> Future[Any]:
        """Starts a step."""
        return started(lambda: self.session.run(fetch, **options))

    def begin_taking(self, n: int) -> Future[Any]:
        """Starts a dequeue of more than there is, and waits until it has taken that."""
        future = self.begin(self.queue.dequeue_many(n))
        wait_until(lambda: self.size == 0)
        return future
