"""What users would trip over, each once."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.task.master.step_runner import RegisteredStep
from tests import clusters
from tests.task.server.test_faults import wait_until


@pytest.fixture
def connection():
    with tf.connect() as made:
        yield made


def test_one_variable_asked_for_in_two_ways_is_one_variable(connection) -> None:
    first = tf.Variable(0.0, name="v")
    with tf.device("/cpu:0"), tf.container("localhost"):
        second = tf.Variable(7.0, name="v")

    @tf.function
    def add():
        first.assign_add(1.0)
        seen = second.value()
        second.assign_add(1.0)
        return seen, first.value()

    assert [tuple(map(float, add())) for _ in range(2)] == [(1.0, 2.0), (3.0, 4.0)]


def test_an_update_asks_for_nothing_that_was_asked_for_when_it_was_first_seen(connection) -> None:
    shape = (3, 7, 11)  # of no other test, so that the program is made here
    with tf.Graph().as_default():
        target = tf.constant(1.0, name="elsewhere")
        with tf.colocate_with(target):
            tf.Variable(jnp.ones(shape)).assign_add(jnp.ones(shape))
    variable = tf.Variable(jnp.ones(shape), name="v")
    tf.function(lambda: variable.assign_add(jnp.ones(shape)))()
    assert variable.numpy()[0, 0, 0] == 2.0


def test_a_method_is_a_function_inside_of_others_too() -> None:
    class Model:
        scale = 2.0

        @tf.function
        def call(self, x):
            return x * self.scale

    model = Model()
    assert model.call(3.0) == 6.0
    assert jax.grad(model.call)(3.0) == 2.0
    assert tf.function(lambda x: model.call(x) + 1)(3.0) == 7.0


def test_a_variable_that_an_inner_function_returns_is_its_value_then(connection) -> None:
    variable = tf.Variable(2.5, name="v")

    @tf.function
    def get():
        return variable

    @tf.function
    def old():
        before = get()
        variable.assign_add(1.0)
        return before

    assert old() == 2.5
    assert get() == 3.5


def test_an_update_by_a_users_function_uses_what_the_function_uses_now(connection) -> None:
    rate = {"of": 0.5}
    variable = tf.Variable(4.0, name="v")
    variable.update(lambda old: old - rate["of"])
    rate["of"] = 2.0
    variable.update(lambda old: old - rate["of"])
    assert variable.numpy() == 1.5
    with pytest.raises(TypeError, match="pass it as an operand"):
        tf.function(lambda x: variable.update(lambda old: old - x))(1.0)


def test_a_fraction_is_not_cut_off_for_an_integer_variable(connection) -> None:
    variable = tf.Variable(0, name="v")
    with pytest.raises(TypeError, match="convert it"):
        tf.function(variable.assign)(1.7)
    with pytest.raises(TypeError, match="convert them"):
        tf.scatter_update(tf.Variable(jnp.zeros(3, int), name="w"), [0], jnp.array([1.7]))


def test_small_indices_reach_large_tables(connection) -> None:
    table = tf.Variable(jnp.zeros(256), name="table")
    tf.scatter_add(table, np.array([3, 200], np.uint8), 1.0)
    assert np.flatnonzero(table.numpy()).tolist() == [3, 200]


def test_blocks_of_two_threads_leave_no_closed_connection_behind() -> None:
    first, second = tf.connect(), tf.connect()
    with first:
        pass
    with second:
        pass
    assert not tf.Variable(1.0).is_eager


def test_the_variables_of_a_closed_connection_are_freed_although_its_functions_stay() -> None:
    double = tf.function(lambda x: x * 2)
    with tf.connect():
        tf.Variable(lambda: jnp.ones((7, 1237)), name="v")
        double(1.0)
        assert any(array.shape == (7, 1237) for array in jax.live_arrays())
    gc.collect()
    assert not any(array.shape == (7, 1237) for array in jax.live_arrays())


def test_a_variable_of_a_closed_connection_says_so() -> None:
    with tf.connect():
        variable = tf.Variable(1.0, name="v")
    with pytest.raises(RuntimeError, match=r"closed .*make the variable again"):
        variable.value()


def test_a_variable_made_inside_of_a_function_is_refused(connection) -> None:
    with pytest.raises(ValueError, match="create it once, outside"):
        tf.function(lambda x: x * tf.Variable(1.0))(2.0)


def test_a_live_variable_is_a_number_and_a_sequence_where_python_asks(connection) -> None:
    scalar, vector = tf.Variable(2.5, name="s"), tf.Variable([1.0, 2.0], name="v")
    assert (float(scalar), int(scalar), len(vector)) == (2.5, 2, 2)
    assert [float(x) for x in vector] == [1.0, 2.0]


def test_a_tensor_fed_twice_is_fed_twice_each_time() -> None:
    x = tf.placeholder("float32", ())
    y = x * 2
    with tf.Session() as session:
        for _ in range(2):
            assert session.run(y, {x: 1.0, x.name: 2.0}) == 4.0


@jax.tree_util.register_pytree_node_class
class _Box:
    """A pytree that looks into its leaves when it is made."""

    def __init__(self, x):
        self.x = x
        self.n = x.shape[0]

    def tree_flatten(self):
        return (self.x,), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


def test_pytrees_may_look_at_their_leaves() -> None:
    np.testing.assert_array_equal(tf.function(lambda b: b.x * b.n)(_Box(jnp.ones(3))), [3, 3, 3])


def _registered_steps() -> list[RegisteredStep]:
    """The steps that the masters of this process know."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, RegisteredStep)]


def test_the_cluster_forgets_the_steps_of_a_function_that_is_gone() -> None:
    others = {id(step): step for step in _registered_steps()}  # other tests may have servers here

    def n_steps() -> int:
        return sum(id(step) not in others for step in _registered_steps())

    with clusters.in_process() as backend, tf.connect(backend.targets[0]):
        variable = tf.Variable(1.0, name="v")
        assert variable.numpy() == 1.0
        wait_until(lambda: n_steps() == 1)  # the read; what made it is gone
        double = tf.function(lambda x: x * variable)
        assert double(2.0) == 2.0
        assert n_steps() == 2
        del double
        wait_until(lambda: n_steps() == 1)
        assert variable.numpy() == 1.0
