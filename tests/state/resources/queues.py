"""Queues of single numbers and what steps do with them, for tests."""

import numpy as np

from jflow.base.values import TensorSpec
from jflow.state.resources.queue import (
    Dequeue,
    Enqueue,
    Queue,
    QueueSpec,
)

FLOAT = TensorSpec((), "float32")


def make(kind="FIFOQueue", capacity=10, components=(FLOAT,), seed=0, **rest):
    if kind == "PriorityQueue":
        components = (TensorSpec((), "int64"), *components)
    spec = QueueSpec(kind, capacity, components=components, **rest)
    return Queue(spec, "q", np.random.default_rng(seed))


def element(*values, dtype=np.float32):
    return tuple(np.array(value, dtype) for value in values)


def submit(queue, *attempts):
    """Submits attempts and returns those that complete on the way."""
    return [completed for attempt in attempts for completed in queue.submit(attempt)]


def put(queue, *values):
    """Adds single numbers, which must not have to wait."""
    for value in values:
        attempt = Enqueue(element(value))
        assert queue.submit(attempt)[0] is attempt
        attempt.result()


def take(queue):
    """Takes a single number, which must be there."""
    attempt = Dequeue()
    assert queue.submit(attempt)[0] is attempt
    return attempt.result()[0].item()


def values(attempt):
    """The first component of what an attempt brought."""
    return attempt.result()[0].tolist()
