"""`use_locking` and `validate_shape` of updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.launch.testing.backends import BackendUnderTest as Backend

pytestmark = pytest.mark.usefixtures("fresh_graph")

SCATTERS = ["update", "add", "sub", "mul", "div", "min", "max"]


def updates(v: tf.Variable) -> dict[str, Callable[..., Any]]:
    """Each update of a variable, as a function of its keywords."""
    found: dict[str, Callable[..., Any]] = {
        "assign": lambda **flags: tf.assign(v, [1.0, 2.0], **flags),
        "assign_add": lambda **flags: tf.assign_add(v, [1.0, 2.0], **flags),
        "assign_sub": lambda **flags: tf.assign_sub(v, [1.0, 2.0], **flags),
        "v.assign": lambda **flags: v.assign([1.0, 2.0], **flags),
        "v.assign_add": lambda **flags: v.assign_add([1.0, 2.0], **flags),
        "v.assign_sub": lambda **flags: v.assign_sub([1.0, 2.0], **flags),
    }
    for name in SCATTERS:
        found[name] = lambda name=name, **flags: getattr(tf, f"scatter_{name}")(v, 0, 3.0, **flags)
        found[f"v.{name}"] = lambda name=name, **flags: getattr(v, f"scatter_{name}")(
            0, 3.0, **flags
        )
    for name in ("update", "add", "sub"):
        found[f"nd_{name}"] = lambda name=name, **flags: getattr(tf, f"scatter_nd_{name}")(
            v, [[0]], [3.0], **flags
        )
    return found


def test_every_update_takes_use_locking_and_refuses_what_is_no_flag() -> None:
    for name, update in updates(tf.Variable([4.0, 5.0])).items():
        for flag in (True, False, None):
            assert isinstance(update(use_locking=flag), tf.Tensor), name
        with pytest.raises(TypeError, match="use_locking must be True, False or None, got 'name'"):
            update(use_locking="name")


def test_parts_and_shards_take_use_locking() -> None:
    parted = tf.get_variable(
        "parted", [4], partitioner=tf.fixed_size_partitioner(2), initializer=tf.zeros_initializer()
    )
    for update in (parted.assign, parted.assign_add, parted.assign_sub):
        assert len(update(np.ones(4, np.float32), use_locking=True)) == 2
        with pytest.raises(TypeError, match="use_locking must be"):
            update(np.ones(4, np.float32), use_locking="name")


@pytest.mark.parametrize(
    "make",
    [
        tf.train.GradientDescentOptimizer,
        tf.train.AdamOptimizer,
        tf.train.AdagradOptimizer,
        tf.train.RMSPropOptimizer,
        tf.train.AdadeltaOptimizer,
        lambda rate, **flags: tf.train.MomentumOptimizer(rate, 0.9, **flags),
        lambda rate, **flags: tf.train.SyncReplicasOptimizer(
            opt=tf.train.GradientDescentOptimizer(rate), replicas_to_aggregate=1, **flags
        ),
    ],
)
def test_every_optimizer_takes_use_locking_and_refuses_what_is_no_flag(
    make: Callable[..., tf.train.Optimizer],
) -> None:
    assert make(0.1, use_locking=True)
    with pytest.raises(TypeError, match="use_locking must be True, False or None, got 'a'"):
        make(0.1, use_locking="a")


def test_an_assignment_may_demand_the_sizes_that_the_variable_has(backend: Backend) -> None:
    v = tf.Variable([1.0, 2.0], validate_shape=False)
    x = tf.placeholder(tf.float32, [None])
    strict, free = (tf.assign(v, x, validate_shape=flag) for flag in (True, False))
    with backend.session() as session:
        session.run(v.initializer)
        assert session.run(strict, {x: [3.0, 4.0]}).tolist() == [3.0, 4.0]
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"expected .* \(2,\), got \(1,\)"):
            session.run(strict, {x: [5.0]})
        assert session.run(v).tolist() == [3.0, 4.0]
        assert session.run(free, {x: [5.0]}).tolist() == [5.0]
        assert session.run(strict, {x: [6.0]}).tolist() == [6.0]
        assert session.run(tf.assign(v, [7.0], validate_shape=True)).tolist() == [7.0]
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"expected .* \(1,\), got \(2,\)"):
            session.run(tf.assign(v, [7.0, 8.0], validate_shape=True))


def test_only_a_variable_that_was_made_so_changes_its_sizes() -> None:
    v = tf.Variable([1.0, 2.0])
    assert tf.assign(v, [3.0, 4.0], validate_shape=False).shape == (2,)
    with pytest.raises(ValueError, match="made with validate_shape=False may change its sizes"):
        tf.assign(v, [3.0], validate_shape=False)
    with pytest.raises(ValueError, match=r"cannot assign a value of shape \(1,\)"):
        tf.assign(v, [3.0])
    with pytest.raises(TypeError, match="validate_shape must be True, False or None, got 'name'"):
        tf.assign(v, [3.0, 4.0], "name")  # type: ignore[arg-type]
