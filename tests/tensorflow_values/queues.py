"""Queues of one component, whose shape or name may stand alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.tensorflow_values.program import Steps, gives


@gives(priority=3, value=[5, 6], scalar=7)
def a_priority_queue_takes_one_shape_for_one_dtype(tf: Any) -> Mapping[str, Any]:
    pairs, scalars = tf.PriorityQueue(10, tf.int32, (2,)), tf.PriorityQueue(10, tf.int32, ())
    enqueued = pairs.enqueue((3, [5, 6]))
    priority, value = pairs.dequeue()
    put = scalars.enqueue((1, 7))
    return {
        "priority": Steps(enqueued, priority),
        "value": Steps(enqueued, value),
        "scalar": Steps(put, scalars.dequeue()[1]),
    }


@gives(value=4.0, single=5.0)
def a_name_alone_is_that_of_the_only_component(tf: Any) -> Mapping[str, Any]:
    queue = tf.FIFOQueue(10, tf.float32, names="f")
    single = tf.FIFOQueue(10, dtypes=tf.float32, shapes=(), names=["f"])
    return {
        "value": Steps(queue.enqueue({"f": 4.0}), queue.dequeue()["f"]),
        "single": Steps(single.enqueue({"f": 5.0}), single.dequeue()["f"]),
    }


PROGRAMS = [
    a_priority_queue_takes_one_shape_for_one_dtype,
    a_name_alone_is_that_of_the_only_component,
]
