"""Lookup tables, hashes of strings, and accumulators of slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.tensorflow_values.program import Steps, gives


def _table(tf: Any, keys: Any, values: Any, default: Any) -> Any:
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), default)


def _integers(tf: Any, *numbers: int) -> Any:
    """int64, which JAX has on the host only unless it is switched on."""
    return tf.string_to_number(tf.constant([str(number) for number in numbers]), tf.int64)


@gives(
    empty=0,
    scalar=8,
    matrix=[[8, -1], [-1, 7]],
    elements=[9, -1],
    n=3,
    twice=[8],
    same=1,
    numbers=[2.5, -1.0],
    words=[20, 0],
)
def entries_in_vectors(tf: Any) -> Mapping[str, Any]:
    table = _table(tf, ["emerson", "lake", "palmer"], [7, 8, 9], -1)
    same = _table(tf, ["a", "a"], [1, 1], -1)
    numbers = _table(tf, np.int64([5, 6]), [1.5, 2.5], -1.0)
    words = _table(tf, np.int64([5, 6]), ["10", "20"], "0")
    places = tf.reshape(tf.constant([0, 1, 2, 0]), [2, 2])
    sparse = tf.SparseTensor(
        tf.string_to_number(tf.as_string(places), tf.int64),
        tf.constant(["palmer", "x"]),
        _integers(tf, 3, 2),
    )
    wanted = _integers(tf, 6, 7)
    init, find = table.initializer, table.lookup
    return {
        "empty": table.size(),
        "scalar": Steps(init, find(tf.constant("lake"))),
        "matrix": Steps(init, find(tf.constant([["lake", "and"], ["", "emerson"]]))),
        "elements": Steps(init, find(sparse).values),
        "n": Steps(init, table.size()),
        "twice": Steps(init, init, find(tf.constant(["lake"]))),
        "same": Steps(same.initializer, same.size()),
        "numbers": Steps(numbers.initializer, numbers.lookup(wanted)),
        "words": Steps(words.initializer, tf.string_to_number(words.lookup(wanted))),
    }


@gives(
    ids=[0, 1, 3, 4, 3, 4],
    n=5,
    integers=[0, 2, 2],
    only=[5, 2],
    elements=[0, 3],
    lengths=[377723, 598337, 40416, 762252, 200771, 750362, 302064, 518772, 595507, 603131],
)
def buckets_of_other_words(tf: Any) -> Mapping[str, Any]:
    def vocabulary(keys: Any, n_buckets: int) -> Any:
        numbers = np.arange(len(keys), dtype=np.int64)
        initializer = tf.lookup.KeyValueTensorInitializer(keys, numbers)
        return tf.lookup.StaticVocabularyTable(initializer, n_buckets)

    words, integers = vocabulary(["a", "b"], 3), vocabulary(np.int64([10, 20]), 7)
    only = tf.lookup.StaticVocabularyTable(None, 7)
    split = tf.string_split(tf.constant(["a c"]))
    init = tf.tables_initializer()
    texts = ["x" * n for n in (0, 1, 5, 16, 17, 32, 33, 64, 65, 200)]
    return {
        "ids": Steps(init, words.lookup(tf.constant(["a", "b", "c", "d", "e", ""]))),
        "n": Steps(init, words.size()),
        "integers": Steps(init, integers.lookup(_integers(tf, 10, 30, -5))),
        "only": only.lookup(tf.constant(["a", "b"])),
        "elements": Steps(init, words.lookup(split).values),
        "lengths": tf.string_to_hash_bucket_fast(texts, 1000003),
    }


def _slices(tf: Any, indices: Any, values: Any) -> Any:
    """Rows in ascending order: TensorFlow does not add up equal indices in any other one."""
    rows = tf.constant(np.float32(values))
    return tf.IndexedSlices(rows, tf.constant(indices), (4, 2))


@gives(
    mean=[[2, 2], [0, 0], [2, 2], [5, 5]],
    sum=[[2, 2], [0, 0], [4, 4], [5, 5]],
    again=[[0, 0], [0, 0], [9, 9], [0, 0]],
    n=1,
    stale=0,
    nothing=[[0, 0]] * 4,
)
def slices_that_are_collected(tf: Any) -> Mapping[str, Any]:
    def collected(reduction: str) -> Any:
        made = tf.SparseConditionalAccumulator(tf.float32, (4, 2), reduction_type=reduction)
        parts = [
            _slices(tf, [0, 2], [[2, 2], [1, 1]]),
            _slices(tf, [2, 3], [[3, 3], [5, 5]]),
        ]
        return made, [made.apply_indexed_slices_grad(part, 7) for part in parts]

    def taken(made: Any) -> Any:
        return tf.convert_to_tensor(made.take_indexed_slices_grad(1))

    mean, applied = collected("MEAN")
    total, added = collected("SUM")
    once, once_applied = collected("MEAN")
    late = once.apply_indexed_slices_grad(_slices(tf, [2], [[9, 9]]), 1)
    stale = once.apply_grad(tf.constant([2]), tf.constant([[9.0, 9.0]]), [4, 2], 0)
    empty = tf.SparseConditionalAccumulator(tf.float32, (4, 2))
    nothing = empty.apply_indexed_slices_grad(_slices(tf, np.zeros(0, np.int32), np.zeros((0, 2))))
    return {
        "mean": Steps(*applied, taken(mean)),
        "sum": Steps(*added, taken(total)),
        "again": Steps(*once_applied, taken(once), late, taken(once)),
        "n": Steps(once.set_global_step(0), late, once.num_accumulated()),
        "stale": Steps(taken(once), stale, once.num_accumulated()),
        "nothing": Steps(nothing, taken(empty)),
    }


PROGRAMS = [buckets_of_other_words, entries_in_vectors, slices_that_are_collected]
