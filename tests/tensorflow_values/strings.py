"""Shapes and comparisons of strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.tensorflow_values.program import gives

_ROWS = [["a", "b"], ["c", "b"]]


def _placeholder(tf: Any, value: Any, shape: Any) -> Any:
    return tf.placeholder_with_default(tf.constant(value), shape)


@gives(
    shape=[2, 2],
    shape_of_any_rank=[2, 2],
    shape_of_a_constant=[3],
    shape_of_text=[],
    size=4,
    size_of_any_rank=4,
    size_of_a_list=2,
    rank=2,
    rank_of_any_rank=2,
    zeros=[[0.0, 0.0], [0.0, 0.0]],
)
def strings_have_shapes(tf: Any) -> Mapping[str, Any]:
    rows, unranked = _placeholder(tf, _ROWS, [None, 2]), _placeholder(tf, _ROWS, None)
    return {
        "shape": tf.shape(rows),
        "shape_of_any_rank": tf.shape(unranked),
        "shape_of_a_constant": tf.shape(tf.constant(["a", "b", "c"])),
        "shape_of_text": tf.shape("text"),
        "size": tf.size(rows),
        "size_of_any_rank": tf.size(unranked),
        "size_of_a_list": tf.size(["a", "b"]),
        "rank": tf.rank(rows),
        "rank_of_any_rank": tf.rank(unranked),
        "zeros": tf.zeros(tf.shape(rows)),
    }


@gives(
    by_row=[[1, 1], [0, 1]],
    by_text=[[0, 1], [0, 1]],
    unequal=[[1, 0], [1, 0]],
    of_any_rank=[[1, 1], [1, 1]],
    lists=[1, 0],
    scalars=1,
    columns=[[1, 0], [0, 0]],
)
def strings_are_compared(tf: Any) -> Mapping[str, Any]:
    rows, unranked = _placeholder(tf, _ROWS, [None, 2]), _placeholder(tf, _ROWS, None)
    column, letter = _placeholder(tf, [["a"], ["a"]], [None, 1]), tf.constant("a")
    answers = {
        "by_row": tf.equal(rows, tf.constant([["a", "b"]])),
        "by_text": tf.equal(rows, "b"),
        "unequal": tf.not_equal("b", rows),
        "of_any_rank": tf.equal(rows, unranked),
        "lists": tf.equal(["a", "b"], ["a", letter]),
        "scalars": tf.equal(letter, "a"),
        "columns": tf.equal(rows, column),
    }
    return {name: tf.cast(answer, tf.int32) for name, answer in answers.items()}


PROGRAMS = [strings_have_shapes, strings_are_compared]
