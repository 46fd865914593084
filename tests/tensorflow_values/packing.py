"""Lists and tuples that contain tensors, in the place of a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.tensorflow_values.program import Steps, gives


@gives(
    numbers=[1.5, 2.0],
    numbers_first=[2.0, 1.5],
    rows=[[1.5, 1.0], [2.0, 3.0]],
    vectors=[[1, 2], [3, 4]],
    cast=[1.0, 1.5],
    preferred=[1.5, 1.0],
    truths=[1, 1],
    strings=[1.0, 2.0],
    rows_of_strings=[[1.0, 2.0], [3.0, 1.0]],
    of_variables=[[7.0, 8.0], [0.0, 1.0]],
)
def lists_with_tensors_become_tensors(tf: Any) -> Mapping[str, Any]:
    x, i, text = tf.constant(1.5), tf.constant(1), tf.constant("1")
    variable = tf.Variable([7.0, 8.0])
    return {
        "numbers": tf.convert_to_tensor([x, 2]),
        "numbers_first": tf.convert_to_tensor((2, x)),
        "rows": tf.convert_to_tensor([[x, 1], (2, tf.constant(3.0))]),
        "vectors": tf.convert_to_tensor([tf.constant([1, 2]), [3, 4]]),
        "cast": tf.convert_to_tensor([i, 1.5], tf.float32),
        "preferred": tf.convert_to_tensor([x, 1], preferred_dtype=tf.float32),
        "truths": tf.convert_to_tensor([i, True]),
        "strings": tf.string_to_number([text, "2"]),
        "rows_of_strings": tf.string_to_number([[text, "2"], ["3", text]]),
        "of_variables": tf.convert_to_tensor([variable, [0.0, 1.0]]),
    }


@gives(initial=[1.5, 2.0], assigned=[1.5, 3.0], cast=[1.0, 0.5], added=[3.0, 3.0], left=[0.0, 1.0])
def variables_take_lists_with_tensors(tf: Any) -> Mapping[str, Any]:
    x, i = tf.constant(1.5), tf.constant(1)
    v = tf.Variable([x, 2])
    return {
        "initial": v,
        "assigned": Steps(v.assign([x, 3]), v),
        "cast": Steps(tf.assign(v, [i, 0.5]), v),
        "added": Steps(v.assign_add((x, 1)), v),
        "left": Steps(tf.assign_sub(v, [x, 1]), v),
    }


@gives(added=[2.5, 3.5], updated=[1.5, 9.0], by_slices=[4.0, 1.5])
def scatter_updates_take_lists_with_tensors(tf: Any) -> Mapping[str, Any]:
    x, i = tf.constant(1.5), tf.constant(1)
    v = tf.Variable([1.0, 2.0])
    return {
        "added": Steps(tf.scatter_add(v, [i, 0], [x, x]), v),
        "updated": Steps(tf.scatter_update(v, (0, i), [x, 9]), v),
        "by_slices": Steps(tf.scatter_nd_update(v, [[i], [0]], [x, 4]), v),
    }


@gives(element=[1.5, 2.0], rows=[[1.5, 2.0], [3.0, 1.5]], text=[1.0, 2.0], wide=[1, 2])
def queues_take_lists_with_tensors(tf: Any) -> Mapping[str, Any]:
    x, i = tf.constant(1.5), tf.constant(1)
    queue = tf.FIFOQueue(5, [tf.float32], [(2,)])
    texts = tf.FIFOQueue(5, [tf.string], [(2,)])
    wide = tf.FIFOQueue(5, ["int64"], [(2,)])
    number = tf.string_to_number(texts.dequeue())
    return {
        "element": Steps(queue.enqueue([[x, 2]]), queue.dequeue()),
        "rows": Steps(queue.enqueue_many([[[x, 2], [3, x]]]), queue.dequeue_many(2)),
        "text": Steps(texts.enqueue([[tf.constant("1"), "2"]]), number),
        "wide": Steps(wide.enqueue([[i, 2]]), wide.dequeue()),
    }


PROGRAMS = [
    lists_with_tensors_become_tensors,
    variables_take_lists_with_tensors,
    scatter_updates_take_lists_with_tensors,
    queues_take_lists_with_tensors,
]
