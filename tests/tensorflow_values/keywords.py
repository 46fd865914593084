"""Keywords of TensorFlow's functions, and bad values of them; 1 stands for what is expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tests.tensorflow_values.program import Steps, gives


def _ones(tf: Any, *checks: bool) -> Any:
    return tf.constant([float(check) for check in checks])


def _refuses(error: type[Exception], call: Callable[[], object]) -> bool:
    try:
        call()
    except error:
        return True
    return False


@gives(assigned=[5, 6], added=[6, 8], rows=[9, 2], refused=[1, 1])
def updates_take_use_locking(tf: Any) -> Mapping[str, Any]:
    v = tf.Variable([1.0, 2.0])
    return {
        "assigned": Steps(tf.assign(v, [5.0, 6.0], use_locking=True), v),
        "added": Steps(
            tf.assign(v, [5.0, 7.0], True, False),
            tf.assign_add(v, [2.0, 2.0], use_locking=False),
            tf.assign_sub(v, [1.0, 1.0], True),
            v,
        ),
        "rows": Steps(
            tf.scatter_update(v, [0], [4.0], use_locking=False),
            tf.scatter_add(v, [0], [5.0], True),
            v,
        ),
        "refused": _ones(
            tf,
            _refuses(ValueError, lambda: tf.assign(v, [1.0, 2.0, 3.0], validate_shape=True)),
            _refuses(
                TypeError,
                lambda: tf.train.GradientDescentOptimizer(0.1, use_locking="a").minimize(v * v),
            ),
        ),
    }


@gives(names=[1, 1, 1, 1, 1, 1], graphs=[1, 1, 1], refused=[1, 1, 1])
def name_scopes_take_a_default_name_and_values(tf: Any) -> Mapping[str, Any]:
    def name_of(*args: Any) -> str:
        with tf.name_scope(*args) as name:
            assert isinstance(name, str)
            return name

    other = tf.Graph()
    with other.as_default():
        x, w = tf.constant(1.0, name="x"), tf.Variable(1.0)
    here = tf.constant(1.0)
    names = _ones(
        tf,
        name_of("a", "b", [1]) == "a/",
        name_of(None, "b", [here]) == "b/",
        name_of(None, "b") == "b_1/",
        not name_of(None),
        name_of("a", None, [here, np.ones(2)]) == "a_1/",
        name_of("c/", "b", []) == "c/",
    )
    with tf.name_scope(None, "of_other", [2.0, x]):
        in_other = tf.get_default_graph() is other and tf.constant(1.0).name == "of_other/Const:0"
    with tf.name_scope("of_variable", values=[w]):
        of_variable = tf.get_default_graph() is other
    with tf.variable_scope(None, "scope", [x]):
        of_scope = tf.get_default_graph() is other
    return {
        "names": names,
        "graphs": _ones(tf, in_other, of_variable, of_scope),
        "refused": _ones(
            tf,
            _refuses(ValueError, lambda: name_of(None, None, [here])),
            _refuses(ValueError, lambda: name_of("both", None, [here, x])),
            _refuses(TypeError, lambda: name_of(3)),
        ),
    }


@gives(refused=[1, 1, 1, 1])
def a_saver_refuses_what_it_cannot_mean(tf: Any) -> Mapping[str, Any]:
    v = tf.Variable(1.0)
    saver = tf.train.Saver([v], write_version=tf.train.SaverDef.V2)
    deferred = tf.train.Saver(defer_build=True, write_version=tf.train.SaverDef.V1)
    return {
        "refused": _ones(
            tf,
            _refuses(ValueError, lambda: tf.train.Saver([v], defer_build=True)),
            _refuses(ValueError, lambda: tf.train.Saver({"a": v}, defer_build=True)),
            isinstance(saver, tf.train.Saver),
            isinstance(deferred, tf.train.Saver),
        )
    }


@gives(refused=[1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
def bad_arguments_of_scopes_and_initializers_are_refused_when_they_are_given(
    tf: Any,
) -> Mapping[str, Any]:
    def scope(is_auxiliary: Any) -> None:
        with tf.variable_scope("x", auxiliary_name_scope=is_auxiliary):
            pass

    floats = ["random_normal", "truncated_normal", "variance_scaling", "orthogonal"]
    return {
        "refused": _ones(
            tf,
            _refuses(TypeError, lambda: scope("invalid")),
            _refuses(TypeError, lambda: scope(None)),
            *(
                _refuses(ValueError, partial(getattr(tf, f"{name}_initializer"), dtype=tf.string))
                for name in floats
            ),
            _refuses(ValueError, lambda: tf.random_normal_initializer(0.0, 1.0, dtype=tf.int32)),
            _refuses(ValueError, lambda: tf.initializers.identity(dtype=tf.string)),
            _refuses(TypeError, lambda: tf.constant_initializer(tf.constant(1.0))),
            _refuses(TypeError, lambda: tf.constant_initializer(tf.Variable(1.0))),
        )
    }


@gives(fields=[1, 1, 1, 1, 1, 1], refused=[1, 1, 1])
def options_can_be_assigned(tf: Any) -> Mapping[str, Any]:
    config = tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.5))
    config.allow_soft_placement = True
    config.gpu_options.allow_growth = True
    config.device_count["GPU"] = 0
    config.intra_op_parallelism_threads = 2
    config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    config.device_filters.append("/job:ps")
    copied = tf.ConfigProto()
    copied.CopyFrom(config)
    config.gpu_options.allow_growth = False
    options = tf.RunOptions()
    options.trace_level = tf.RunOptions.FULL_TRACE

    def assign(name: str, value: Any) -> None:
        setattr(config, name, value)

    return {
        "fields": _ones(
            tf,
            config.allow_soft_placement is True,
            copied.gpu_options.allow_growth is True,
            dict(copied.device_count) == {"GPU": 0},
            copied.gpu_options.per_process_gpu_memory_fraction == 0.5,
            list(copied.device_filters) == ["/job:ps"],
            options.trace_level == 3,
        ),
        "refused": _ones(
            tf,
            _refuses(AttributeError, lambda: assign("allow_growth", True)),
            _refuses(TypeError, lambda: assign("intra_op_parallelism_threads", "4")),
            _refuses(TypeError, lambda: assign("operation_timeout_in_ms", 0.5)),
        ),
    }


PROGRAMS = [
    updates_take_use_locking,
    name_scopes_take_a_default_name_and_values,
    a_saver_refuses_what_it_cannot_mean,
    bad_arguments_of_scopes_and_initializers_are_refused_when_they_are_given,
    options_can_be_assigned,
]
