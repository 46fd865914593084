"""Initial values from a checkpoint: names, scopes, partitions and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.tensorflow_values.bundles import SHARDS
from tests.tensorflow_values.program import gives

CHECKPOINT = str(SHARDS)
NUMBERED = np.arange(12, dtype=np.float32).reshape(4, 3)


def _matrix(tf: Any, name: str, n_parts: int = 0) -> Any:
    partitioner = tf.fixed_size_partitioner(n_parts) if n_parts else None
    return tf.get_variable(
        name, (4, 3), initializer=tf.zeros_initializer(), partitioner=partitioner
    )


def _vector(tf: Any, name: str) -> Any:
    return tf.get_variable(name, (3,), tf.int32, tf.zeros_initializer())


@gives(rows=NUMBERED, columns=NUMBERED, whole=[0, 1, 2], other=[0, 0, 0])
def scopes_are_initialized_by_the_names_in_them(tf: Any) -> Mapping[str, Any]:
    other = _vector(tf, "other")
    with tf.variable_scope("new"):
        rows, columns = _matrix(tf, "rows", 3), _matrix(tf, "columns")
        whole = _vector(tf, "whole")
    tf.train.init_from_checkpoint(CHECKPOINT, {"scope/": "new/"})
    return {"rows": tf.convert_to_tensor(rows), "columns": columns, "whole": whole, "other": other}


@gives(from_root=NUMBERED, to_root=[0, 1, 2])
def the_root_is_a_scope(tf: Any) -> Mapping[str, Any]:
    with tf.variable_scope("new/scope"):
        rows = _matrix(tf, "rows")
    tf.train.init_from_checkpoint(CHECKPOINT, {"/": "new/"})
    with tf.variable_scope("model"):
        whole = _vector(tf, "whole")
    tf.train.init_from_checkpoint(CHECKPOINT, {"scope/": "model/"})
    return {"from_root": rows, "to_root": whole}


@gives(named=NUMBERED, given=NUMBERED, listed=NUMBERED, twice=[[0, 1, 2], [0, 1, 2]])
def variables_are_initialized_by_name_object_or_parts(tf: Any) -> Mapping[str, Any]:
    named, listed = _matrix(tf, "named", 2), _matrix(tf, "listed", 3)
    given = tf.Variable(tf.zeros((4, 3)))
    first, second = _vector(tf, "first"), _vector(tf, "second")
    assignment = {"scope/rows": "named", "scope/columns": given}
    tf.train.init_from_checkpoint(CHECKPOINT, assignment)
    tf.train.init_from_checkpoint(CHECKPOINT, {"scope/columns": [*listed]})
    pairs = [("scope/whole", first), ("scope/whole", "second")]
    tf.train.init_from_checkpoint(CHECKPOINT, pairs)
    return {
        "named": tf.convert_to_tensor(named),
        "given": given,
        "listed": tf.convert_to_tensor(listed),
        "twice": tf.stack([first, second]),
    }


@gives(chosen=NUMBERED, other=0.0, step=[0, 1, 2])
def a_warm_start_chooses_variables(tf: Any) -> Mapping[str, Any]:
    with tf.variable_scope("scope"):
        rows = _matrix(tf, "rows", 2)
        other = tf.get_variable("unknown", (), initializer=tf.zeros_initializer())
        whole = tf.get_variable("whole", (3,), tf.int32, tf.zeros_initializer(), trainable=False)
    tf.train.warm_start(CHECKPOINT, ".*/ro")
    tf.train.warm_start(CHECKPOINT, ["scope/wh.*"])
    tf.train.warm_start(CHECKPOINT, None)
    return {"chosen": tf.convert_to_tensor(rows), "other": other, "step": whole}


@gives(renamed=NUMBERED, listed=[0, 1, 2])
def a_warm_start_knows_former_names(tf: Any) -> Mapping[str, Any]:
    renamed, listed = _matrix(tf, "renamed", 2), _vector(tf, "listed")
    former = {"renamed": "scope/columns", "listed": "scope/whole"}
    tf.train.warm_start(CHECKPOINT, [*renamed, listed], var_name_to_prev_var_name=former)
    return {"renamed": tf.convert_to_tensor(renamed), "listed": listed}


@gives(refused=np.ones(7))
def what_does_not_fit_is_refused(tf: Any) -> Mapping[str, Any]:
    vector, matrix = _vector(tf, "vector"), _matrix(tf, "matrix", 2)
    with tf.variable_scope("scope"):
        _vector(tf, "unknown")
    load, warm = tf.train.init_from_checkpoint, tf.train.warm_start
    calls = [
        lambda: load(CHECKPOINT, {"scope/missing": vector}),
        lambda: load(CHECKPOINT, {"scope/rows": vector}),
        lambda: load(CHECKPOINT, {"scope/rows": "missing"}),
        lambda: load(CHECKPOINT, {"scope/": "scope/"}),
        lambda: load(CHECKPOINT, {"scope/rows": [next(iter(matrix)), vector]}),
        lambda: warm(CHECKPOINT, "vector", var_name_to_prev_var_name={"scope/unknown": "w"}),
        lambda: warm(CHECKPOINT, ["vector", vector]),
    ]
    return {"refused": tf.stack([tf.constant(float(_is_refused(one))) for one in calls])}


def _is_refused(call: Callable[[], Any]) -> bool:
    try:
        call()
    except (ValueError, AttributeError):  # TensorFlow's, for a list with a whole variable
        return True
    return False


PROGRAMS = [
    scopes_are_initialized_by_the_names_in_them,
    the_root_is_a_scope,
    variables_are_initialized_by_name_object_or_parts,
    a_warm_start_chooses_variables,
    a_warm_start_knows_former_names,
    what_does_not_fit_is_refused,
]
