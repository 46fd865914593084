"""A client of the queue that works until it is killed.

    python -m tests.chaos.client producer|consumer NUMBER TARGET HISTORY SEED

It says "ready" when it is connected, and begins when it is told to. It ends with its standard
input, so that none is left behind by a test that dies.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import jflow as tf
from jflow.errors import DeadlineExceededError
from tests.chaos.history import FAIL, OK, Element, Recorder

CAPACITY = 16
LARGEST_GET = 5
PAYLOAD = (64,)
TIMEOUTS_S = (None, 0.002, 0.02, 0.2)


class Client(Protocol):
    """A way to use the queue. A call that takes longer than its timeout changes nothing."""

    def put(self, element: Element, timeout: float | None) -> None:
        """Adds an element."""

    def get(self, n: int, timeout: float | None) -> list[Element]:
        """Takes that many elements."""


def make_queue() -> tf.QueueBase:
    """The queue that all clients share."""
    dtypes = {"name": tf.int32, "payload": tf.float32}
    shapes = {"name": (2,), "payload": PAYLOAD}
    return tf.FIFOQueue(CAPACITY, dtypes, shapes=shapes, shared_name="chaos")


class PlainClient:
    """Uses it from plain Python, on a connection."""

    def __init__(self, target: str) -> None:
        self._connection = tf.connect(target)
        self._queue = make_queue()

    def put(self, element: Element, timeout: float | None) -> None:
        self._queue.put(_value_of(element), timeout)

    def get(self, n: int, timeout: float | None) -> list[Element]:
        if n > 1:
            return _elements_in(self._queue.get_many(n, timeout))
        return _elements_in({k: v[None] for k, v in self._queue.get(timeout).items()})

    def get_up_to(self, n: int, timeout: float | None) -> list[Element]:
        """Takes what is there, one element at least."""
        return _elements_in(self._queue.get_up_to(n, timeout=timeout))

    def close(self) -> None:
        """Ends the connection, which is current in the whole process until then."""
        self._connection.close()


class GraphClient:
    """Uses it through operations of a graph, in a session."""

    def __init__(self, target: str) -> None:
        queue = make_queue()
        self._session = tf.Session(target)
        self._count = tf.placeholder(tf.int32, (), name="count")
        self._fed = {
            "name": tf.placeholder(tf.int32, (2,)),
            "payload": tf.placeholder(tf.float32, PAYLOAD),
        }
        self._enqueue = queue.enqueue(self._fed)
        self._dequeue_many = queue.dequeue_many(self._count)

    def put(self, element: Element, timeout: float | None) -> None:
        value = _value_of(element)
        feeds = {self._fed[key]: value[key] for key in value}
        self._session.run(self._enqueue, feeds, _options(timeout))

    def get(self, n: int, timeout: float | None) -> list[Element]:
        batch = self._session.run(self._dequeue_many, {self._count: n}, _options(timeout))
        return _elements_in(batch)


def produce(client: Client, number: int, recorder: Recorder, rng: random.Random) -> None:
    """Puts one element after the other."""
    for i in range(sys.maxsize):
        element = Element(number, i)
        timeout = rng.choice(TIMEOUTS_S)
        recorder.put("invoke", element)
        try:
            client.put(element, timeout)
        except DeadlineExceededError:
            recorder.put(FAIL, element)
        else:
            recorder.put(OK, element)
        _rest(rng)


def consume(client: Client, recorder: Recorder, rng: random.Random) -> None:
    """Gets elements, one or several at a time."""
    ways: list[Callable[[int, float | None], Sequence[Element]]] = [client.get]
    if isinstance(client, PlainClient):
        ways.append(client.get_up_to)
    while True:
        n = rng.randint(1, LARGEST_GET)
        timeout = rng.choice(TIMEOUTS_S)
        recorder.invoke_get(n)
        try:
            elements = rng.choice(ways)(n, timeout)
        except DeadlineExceededError:
            recorder.end_get(FAIL)
        else:
            recorder.end_get(OK, elements)
        _rest(rng)


def _rest(rng: random.Random) -> None:
    """Now and then the others have time to fill the queue, or to empty it."""
    if rng.random() < 0.02:
        time.sleep(rng.uniform(0.0, 0.2))


def _value_of(element: Element) -> dict[str, Any]:
    payload = np.full(PAYLOAD, element.number, np.float32)
    return {"name": np.asarray(element, np.int32), "payload": payload}


def _elements_in(batch: dict[str, Any]) -> list[Element]:
    elements = [Element(*map(int, name)) for name in batch["name"]]
    for element, payload in zip(elements, batch["payload"], strict=True):
        assert (payload == element.number).all(), f"{element} came out with the payload of another"
    return elements


def _options(timeout: float | None) -> tf.RunOptions:
    return tf.RunOptions(timeout_in_ms=round((timeout or 0) * 1000))


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    """Runs the process."""
    role, number, target, path, seed = sys.argv[1:]
    rng = random.Random(int(seed))
    client: Client = rng.choice([PlainClient, GraphClient])(target)
    recorder = Recorder(Path(path))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    threading.Thread(target=_end_with_input, daemon=True).start()
    if role == "producer":
        produce(client, int(number), recorder, rng)
    else:
        consume(client, recorder, rng)


if __name__ == "__main__":
    main()
