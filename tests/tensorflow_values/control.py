"""Branches and loops: their values, their derivatives, and what they do with variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.tensorflow_values.program import Steps, gives


@gives(yes=[3, 4], no=[-1, -2], both=7, slope=[2, 4], nested=5, ops=True)
def a_branch_that_uses_tensors_from_outside(tf: Any) -> Mapping[str, Any]:
    x, flag = tf.constant([1.0, 2.0]), tf.placeholder(tf.bool, [])
    two = tf.constant(2.0)
    chosen = tf.cond(flag, lambda: x + two, lambda: -x)
    pair = tf.cond(flag, lambda: {"a": two, "b": x[0]}, lambda: {"a": x[1] * 3.0, "b": x[0]})
    square = tf.cond(flag, lambda: tf.square(x), lambda: x)
    nested = tf.cond(flag, lambda: tf.cond(x[0] > 5.0, lambda: two, lambda: two + 3.0), lambda: two)
    ops = tf.cond(flag, tf.no_op, tf.no_op)
    return {
        "yes": Steps((chosen, {flag: True})),
        "no": Steps((chosen, {flag: False})),
        "both": Steps((pair["a"] + pair["b"], {flag: False})),
        "slope": Steps((tf.gradients(square, x)[0], {flag: True})),
        "nested": Steps((nested, {flag: True})),
        "ops": Steps((ops, {flag: True})),
    }


@gives(first=30, second=10, last=20, number=[1, 3])
def the_first_of_several_cases(tf: Any) -> Mapping[str, Any]:
    x = tf.placeholder(tf.float32, [])
    pairs = [(x < 0.0, lambda: tf.constant(30.0)), (x < 1.0, lambda: tf.constant(10.0))]
    chosen = tf.case(pairs, default=lambda: tf.constant(20.0))
    return {
        "first": Steps((chosen, {x: -2.0})),
        "second": Steps((chosen, {x: 0.5})),
        "last": Steps((chosen, {x: 2.0})),
        "number": tf.stack([_by_number(tf, 0), _by_number(tf, 9)]),
    }


def _by_number(tf: Any, number: int) -> Any:
    functions = [lambda: tf.constant(1), lambda: tf.constant(3)]
    return tf.switch_case(tf.constant(number), functions)


@gives(
    powers=[10, 1024],
    single=16,
    bounded=[3, 8],
    slope=12,
    outer=[5, 15],
    nested=12,
    named=[4, 3],
)
def a_loop_that_ends_on_a_condition(tf: Any) -> Mapping[str, Any]:
    step, x = tf.constant(3.0), tf.constant(2.0)
    powers = tf.while_loop(
        lambda i, _: i < 10, lambda i, y: (i + 1, y * 2.0), [0, tf.constant(1.0)]
    )
    single = tf.while_loop(lambda y: y < 10.0, lambda y: [y * 2.0], [tf.constant(1.0)])
    bounded = tf.while_loop(
        lambda i, _: i < 10,
        lambda i, y: (i + 1, y * x),
        (tf.constant(0), tf.constant(1.0)),
        maximum_iterations=3,
    )
    slope = tf.gradients(bounded[1], x)[0]
    outer = tf.while_loop(
        lambda i, _: i < 5, lambda i, y: (i + 1, y + step), [tf.constant(0), tf.constant(0.0)]
    )
    inner = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, y: (
            i + 1,
            tf.while_loop(lambda j, _: j < 4, lambda j, z: (j + 1, z + 1.0), [0, y])[1],
        ),
        [0, tf.constant(0.0)],
    )
    named = tf.while_loop(
        lambda v: v["n"] < 4,
        lambda v: [{"n": v["n"] + 1, "x": v["x"] + 0.75}],
        [{"n": tf.constant(0), "x": tf.constant(0.0)}],
    )
    return {
        "powers": tf.stack([tf.to_float(powers[0]), powers[1]]),
        "single": single,
        "bounded": tf.stack([tf.to_float(bounded[0]), bounded[1]]),
        "slope": slope,
        "outer": tf.stack([tf.to_float(outer[0]), outer[1]]),
        "nested": inner[1],
        "named": tf.stack([tf.to_float(named[0]["n"]), named[0]["x"]]),
    }


ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


@gives(
    squares=[[0, 1], [4, 9], [16, 25]],
    pairs=[1, 5, 9],
    left=[6, 9],
    started=[106, 109],
    right=[2, 3],
    running=[[0, 1], [2, 4], [6, 9]],
    backwards=[[6, 9], [6, 8], [4, 5]],
    slope=[[6, 6], [6, 6], [6, 6]],
    sized=[0, 2, 6],
)
def loops_over_rows(tf: Any) -> Mapping[str, Any]:
    rows, scale = tf.constant(ROWS), tf.constant(3.0)
    fed = tf.placeholder(tf.float32, [None])
    mapped = tf.map_fn(lambda row: tf.reduce_sum(row * scale), rows)
    return {
        "squares": tf.map_fn(tf.square, rows),
        "pairs": tf.map_fn(
            lambda pair: pair[0][0] + pair[1], (rows, tf.constant([1.0, 3.0, 5.0])), tf.float32
        ),
        "left": tf.foldl(lambda total, row: total + row, rows),
        "started": tf.foldl(lambda total, row: total + row, rows, tf.constant([100.0, 100.0])),
        "right": tf.foldr(lambda total, row: row - total, rows),
        "running": tf.scan(lambda total, row: total + row, rows),
        "backwards": tf.scan(lambda total, row: total + row, rows, reverse=True),
        "slope": tf.gradients(mapped * 2.0, rows)[0],
        "sized": Steps(
            (tf.scan(lambda total, x: total + x, fed, tf.constant(0.0)), {fed: [0.0, 2.0, 4.0]})
        ),
    }


@gives(taken=5, not_taken=1, counted=[10, 55], mapped=[6, 4])
def variables_that_bodies_write(tf: Any) -> Mapping[str, Any]:
    v, flag = tf.get_variable("v", initializer=1.0), tf.placeholder(tf.bool, [])
    n, total = tf.get_variable("n", initializer=0), tf.get_variable("t", initializer=0.0)
    branch = tf.cond(flag, lambda: v.assign(5.0), lambda: v + 0.0)

    def count(i: Any) -> Any:
        with tf.control_dependencies([n.assign_add(1)]):
            added = total.assign_add(tf.to_float(n.read_value()))
        with tf.control_dependencies([added]):
            return i + 1

    counted = tf.while_loop(lambda i: i < 10, count, [tf.constant(0)])

    def take(x: Any) -> Any:
        with tf.control_dependencies([v.assign_add(x)]):
            return v.read_value()

    mapped = tf.map_fn(take, tf.constant([1.0, 2.0]), parallel_iterations=1)

    def after(op: Any, *variables: Any) -> Any:
        return Steps((op, {flag: True}), tf.stack([tf.to_float(x) for x in variables]))

    return {
        "taken": Steps((branch, {flag: True}), v),
        "not_taken": Steps((branch, {flag: False}), v),
        "counted": after(counted, n, total),
        "mapped": Steps(tf.stack([tf.reduce_sum(mapped), mapped[1]])),
    }


PROGRAMS = [
    a_branch_that_uses_tensors_from_outside,
    a_loop_that_ends_on_a_condition,
    loops_over_rows,
    the_first_of_several_cases,
    dataclasses.replace(variables_that_bodies_write, needs_resources=True),
]
