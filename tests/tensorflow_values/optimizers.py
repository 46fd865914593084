"""Optimizers: their numbers, what they share, and their hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.tensorflow_values.program import Program, Steps, gives

N_STEPS = 5


def _steps(make: Callable[[Any], Any], name: str, expected: list[float]) -> Program:
    """Five steps with changing gradients."""

    def build(tf: Any) -> Mapping[str, Any]:
        v, slope = tf.Variable([1.0, 2.0]), tf.placeholder(tf.float32, (2,))
        train = make(tf).apply_gradients([(slope, v)])
        slopes = [[0.1 * n, 0.5 - 0.2 * n] for n in range(N_STEPS)]
        return {"after": Steps(*((train, {slope: one}) for one in slopes), v)}

    build.__name__ = f"five_steps_of_{name}"
    return gives(after=expected)(build)


FIVE_STEPS = [
    _steps(lambda tf: tf.train.GradientDescentOptimizer(0.5), "gradient_descent", [0.5, 1.75]),
    _steps(lambda tf: tf.train.MomentumOptimizer(0.5, 0.9), "momentum", [0.07205, 0.569875]),
    _steps(
        lambda tf: tf.train.MomentumOptimizer(0.5, 0.9, use_nesterov=True),
        "nesterov",
        [-0.335155, 0.462888],
    ),
    _steps(lambda tf: tf.train.AdagradOptimizer(0.5), "adagrad", [-0.031368, 1.552735]),
    _steps(
        lambda tf: tf.train.AdadeltaOptimizer(10.0, 0.9, 1e-3), "adadelta", [-3.414619, 1.059906]
    ),
    _steps(lambda tf: tf.train.RMSPropOptimizer(0.1), "rmsprop", [0.878026, 1.953894]),
    _steps(
        lambda tf: tf.train.RMSPropOptimizer(0.1, momentum=0.9, epsilon=0.1),
        "rmsprop_with_momentum",
        [0.79245, 1.718898],
    ),
    _steps(
        lambda tf: tf.train.RMSPropOptimizer(0.1, momentum=0.9, epsilon=0.1, centered=True),
        "centered_rmsprop_with_momentum",
        [0.792014, 1.718292],
    ),
    _steps(lambda tf: tf.train.FtrlOptimizer(0.5), "ftrl", [-1.0313686, 0.4836898]),
    _steps(
        lambda tf: tf.train.FtrlOptimizer(0.5, -0.7, 0.2, 0.01, 0.02),
        "ftrl_with_regularization",
        [-0.9981335, 0.3786855],
    ),
    _steps(
        lambda tf: tf.train.FtrlOptimizer(
            0.5, l1_regularization_strength=0.05, l2_shrinkage_regularization_strength=0.1
        ),
        "ftrl_with_shrinkage",
        [-0.9042745, 0.1172803],
    ),
    _steps(
        lambda tf: tf.train.ProximalGradientDescentOptimizer(0.5, 0.1, 0.2),
        "proximal_gradient_descent",
        [0.0163146, 0.9347413],
    ),
    _steps(
        lambda tf: tf.train.ProximalAdagradOptimizer(0.5, 0.1, 0.1, 0.2),
        "proximal_adagrad",
        [-0.3511673, 0.5857528],
    ),
    _steps(
        lambda tf: tf.train.MomentumOptimizer(tf.constant(0.5), tf.constant(0.9)),
        "momentum_of_tensors",
        [0.07205, 0.569875],
    ),
    _steps(
        lambda tf: tf.train.MomentumOptimizer(lambda: 0.5, lambda: 0.9),
        "momentum_of_functions",
        [0.07205, 0.569875],
    ),
    _steps(
        lambda tf: tf.train.RMSPropOptimizer(
            tf.constant(0.1), tf.constant(0.9), tf.constant(0.9), tf.constant(0.1)
        ),
        "rmsprop_of_tensors",
        [0.79245, 1.718898],
    ),
]


@gives(after=[-0.696016, -0.2842273])
def dual_averaging_counts_steps(tf: Any) -> Mapping[str, Any]:
    v, slope = tf.Variable([1.0, 2.0]), tf.placeholder(tf.float32, (2,))
    number = tf.train.get_or_create_global_step()
    optimizer = tf.train.AdagradDAOptimizer(0.5, number, 0.1, 0.01, 0.02)
    train = optimizer.apply_gradients([(slope, v)], global_step=number)
    slopes = [[0.1 * n, 0.5 - 0.2 * n] for n in range(N_STEPS)]
    return {"after": Steps(*((train, {slope: one}) for one in slopes), v)}


@gives(
    first=[1.0, 0.5],
    second=[0.5, 0.25],
    equal=[1.0, 0.855725],
    linear=[1.001, 0.06784403],
    without_noise=[1.001, 0.06784403],
)
def rates_that_restart(tf: Any) -> Mapping[str, Any]:
    def at(step: int, **given: Any) -> Any:
        return tf.train.cosine_decay_restarts(1.0, step, 10, m_mul=0.5, **given)

    return {
        "first": tf.stack([at(0), at(5)]),
        "second": tf.stack([at(10), at(20)]),
        "equal": tf.stack([at(0, t_mul=1.0), at(3, t_mul=1.0, alpha=0.3)]),
        "linear": tf.stack(
            [
                tf.train.linear_cosine_decay(1.0, 0, 10),
                tf.train.linear_cosine_decay(1.0, 4, 10, num_periods=1.0, alpha=0.1),
            ]
        ),
        "without_noise": tf.stack(
            [
                tf.train.noisy_linear_cosine_decay(1.0, 0, 10, 0.0),
                tf.train.noisy_linear_cosine_decay(1.0, 4, 10, 0.0, 0.5, 1.0, 0.1),
            ]
        ),
    }


@gives(momentum=[0.42, 1.42], adagrad=[-0.180373, 0.819627], adam=[-2.0, -1.0])
def two_updates_of_an_optimizer_share_its_slots(tf: Any) -> Mapping[str, Any]:
    optimizers = {
        "momentum": tf.train.MomentumOptimizer(2.0, 0.9),
        "adagrad": tf.train.AdagradOptimizer(2.0, 0.1),
        "adam": tf.train.AdamOptimizer(1.5),
    }
    g = tf.constant([0.1, 0.1])
    fetches = {}
    for name, optimizer in optimizers.items():
        v = tf.Variable([1.0, 2.0])
        first = optimizer.apply_gradients([(g, v)])
        second = optimizer.apply_gradients([(g, v)])
        fetches[name] = Steps(first, second, v)
    return fetches


@gives(after=[-0.3435])
def the_momentum_of_rmsprop_keeps_the_rate_of_its_updates(tf: Any) -> Mapping[str, Any]:
    v, rate = tf.Variable([1.0]), tf.placeholder(tf.float32, ())
    optimizer = tf.train.RMSPropOptimizer(rate, 0.9, momentum=0.9, epsilon=1.0)
    update = optimizer.apply_gradients([(tf.constant([1.0]), v)])
    return {"after": Steps((update, {rate: 1.0}), (update, {rate: 0.0}), v)}


_SLOTS = {
    "Momentum": {"momentum": ""},
    "Adagrad": {"accumulator": ""},
    "Adadelta": {"accum": "", "accum_update": "_1"},
    "RMSProp": {"mg": "_1", "momentum": "_2", "rms": ""},
    "Adam": {"m": "", "v": "_1"},
    "Ftrl": {"accum": "", "linear": "_1"},
    "AdagradDA": {"gradient_accumulator": "", "gradient_squared_accumulator": "_1"},
    "ProximalAdagrad": {"accumulator": ""},
    "ProximalGradientDescent": {},
}
"""What the name of the variable of each slot ends with, after that of the optimizer."""


@gives(names=[1.0] * 9, in_scopes=[1.0] * 3)
def slots_have_names(tf: Any) -> Mapping[str, Any]:
    train = tf.train
    optimizers = {
        "Momentum": train.MomentumOptimizer(0.1, 0.9),
        "RMSProp": train.RMSPropOptimizer(0.1, momentum=0.9, centered=True),
        "AdagradDA": train.AdagradDAOptimizer(0.1, train.get_or_create_global_step()),
    }
    names = []
    for name, ends in _SLOTS.items():
        with tf.variable_scope(name):
            w = tf.get_variable("w", (2,))
        optimizer = optimizers.get(name) or getattr(train, f"{name}Optimizer")(0.1)
        optimizer.apply_gradients([(tf.constant([0.1, 0.2]), w)])
        own = [optimizer.get_slot(w, slot).op.name for slot in optimizer.get_slot_names()]
        is_named = own == [f"{name}/w/{name}{end}" for end in ends.values()]
        names.append(float(is_named and optimizer.get_slot_names() == [*ends]))
    w = tf.get_variable("w", (2,))
    pairs = [(tf.constant([0.1, 0.2]), w)]
    first, second, third = (train.AdamOptimizer(0.1, name="Own") for _ in range(3))
    first.apply_gradients(pairs)
    with tf.name_scope("names"):
        second.apply_gradients(pairs, name="update")
    with tf.variable_scope("variables"):
        third.apply_gradients(pairs)
    slots = [one.get_slot(w, "v").op.name for one in (first, second, third)]
    in_scopes = zip(slots, ["w/Own_1", "w/Own_3", "variables/w/Own_1"], strict=True)
    return {
        "names": tf.constant(names),
        "in_scopes": tf.constant([float(found == wanted) for found, wanted in in_scopes]),
    }


@gives(after=0.8, n_variables=1, n_train_ops=1)
def gradient_descent_has_no_variables(tf: Any) -> Mapping[str, Any]:
    w = tf.Variable(1.0)
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    train = optimizer.minimize(
        w * w, gate_gradients=optimizer.GATE_GRAPH, colocate_gradients_with_ops=True
    )
    assert tf.get_collection(tf.GraphKeys.TRAIN_OP) == [train]
    assert not optimizer.variables()
    return {
        "after": Steps(train, w),
        "n_variables": tf.constant(len(tf.global_variables())),
        "n_train_ops": tf.constant(len(tf.get_collection(tf.GraphKeys.TRAIN_OP))),
    }


@gives(stopped=[1.0, 1.0], through=3.0, partly=2.0, gated=[3.0, 1.0])
def derivatives_do_not_pass_what_is_stopped(tf: Any) -> Mapping[str, Any]:
    a = tf.Variable(2.0)
    b = a * 2.0
    c = b * 1.0
    stopped = tf.gradients(a + b, [a, b], stop_gradients=[a, b])
    through = tf.gradients(a + b, a, aggregation_method=tf.AggregationMethod.ADD_N)[0]
    partly = tf.gradients(b + c, a, stop_gradients=c)[0]
    gated = tf.gradients(a + b, [a, b], gate_gradients=True, colocate_gradients_with_ops=True)
    return {"stopped": stopped, "through": through, "partly": partly, "gated": gated}


PROGRAMS = [
    *FIVE_STEPS,
    dual_averaging_counts_steps,
    rates_that_restart,
    two_updates_of_an_optimizer_share_its_slots,
    the_momentum_of_rmsprop_keeps_the_rate_of_its_updates,
    slots_have_names,
    gradient_descent_has_no_variables,
    derivatives_do_not_pass_what_is_stopped,
]
