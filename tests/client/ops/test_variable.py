import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf


def _run(*fetches):
    """The values of the fetches in consecutive steps."""
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return [session.run(fetch) for fetch in fetches]


@pytest.mark.parametrize(
    "make",
    [
        lambda: 2.0,
        lambda: np.float32(2),
        lambda: tf.constant(2.0),
        lambda: tf.constant(1.0) + 1,
        lambda: lambda: 2.0,
        lambda: lambda: tf.constant(2.0),
    ],
)
def test_an_initial_value_is_a_number_an_array_a_tensor_or_a_function(make):
    variable = tf.Variable(make(), name="x")
    assert (variable.name, variable.shape, variable.dtype) == ("x:0", (), np.float32)
    assert _run(variable) == [2.0]


def test_an_initial_value_may_come_from_another_variable():
    first = tf.Variable([1.0, 2.0])
    second = tf.Variable(first * 3)
    with tf.Session() as session:
        session.run(first.initializer)
        session.run(second.initializer)
        np.testing.assert_array_equal(session.run(second), [3.0, 6.0])


def test_a_variable_needs_an_initial_value():
    with pytest.raises(ValueError, match="variable 'x' needs an initial value"):
        tf.Variable(None, name="x")
    with pytest.raises(TypeError, match="variable 'x' cannot hold strings"):
        tf.Variable("text", name="x")


def test_a_variable_can_be_asked_for_in_a_dtype():
    assert tf.Variable(1, dtype="float32").dtype == np.float32
    assert tf.Variable(0.5, dtype=tf.bfloat16).dtype == tf.bfloat16
    with pytest.raises(TypeError, match="requested with dtype int32"):
        tf.Variable(tf.constant(1.0), name="x", dtype="int32")
    with pytest.raises(TypeError, match="not compatible"):
        tf.Variable(1.5, dtype="int32")


def test_variables_have_unique_names_and_the_name_says_which_value_it_is():
    first, second = tf.Variable(1.0, name="x"), tf.Variable(2.0, name="x")
    assert (first.name, second.name) == ("x:0", "x_1:0")
    assert _run([first, second]) == [[1.0, 2.0]]


def test_a_variable_describes_itself():
    variable = tf.Variable(np.zeros((2, 3)), name="x")
    assert repr(variable) == "<jflow.Variable 'x:0' shape=(2, 3) dtype=float32>"
    assert variable.graph is tf.get_default_graph()
    assert (variable.container, variable.device) == ("", "")


def test_assign_sets_adds_and_subtracts_and_gives_the_new_value():
    x = tf.Variable([1.0, 2.0])
    found = _run(x.assign([5.0, 6.0]), x.assign_add([1.0, 1.0]), x.assign_sub(2.0), x)
    np.testing.assert_array_equal(found, [[5, 6], [6, 7], [4, 5], [4, 5]])


def test_the_functions_are_the_methods():
    x = tf.Variable(1.0)
    found = _run(tf.assign(x, 5.0), tf.assign_add(x, 2.0), tf.assign_sub(x, 3.0))
    assert found == [5.0, 7.0, 4.0]
    for function in (tf.assign, tf.assign_add, tf.assign_sub):
        with pytest.raises(TypeError, match="expected a variable to assign to"):
            function(tf.constant(1.0), 1.0)


def test_an_update_takes_tensors_variables_and_what_broadcasts():
    x, y = tf.Variable(np.ones((2, 2))), tf.Variable([10.0, 20.0])
    found = _run(x.assign_add(y), x.assign_sub(tf.constant([[1.0], [2.0]])), x.assign(x * 0))
    np.testing.assert_array_equal(found[0], [[11, 21], [11, 21]])
    np.testing.assert_array_equal(found[1], [[10, 20], [9, 19]])
    np.testing.assert_array_equal(found[2], np.zeros((2, 2)))


def test_an_update_computes_with_arrays_that_it_closes_over():
    small, large = jnp.array([1.0, 2.0]), np.arange(10_000, dtype=np.float32)
    keys = jax.random.split(jax.random.key(1), 2)
    x, y = tf.Variable([1.0, 1.0]), tf.Variable(large)
    key = tf.Variable(jax.random.key(0))
    found = _run(
        x.update(lambda old: old * small),
        y.update(lambda old: old + large),
        key.update(lambda _: keys[1]),
    )
    np.testing.assert_array_equal(found[0], [1, 2])
    np.testing.assert_array_equal(found[1], 2 * large)
    np.testing.assert_array_equal(jax.random.key_data(found[2]), jax.random.key_data(keys[1]))


def test_a_number_takes_the_dtype_of_the_variable():
    x = tf.Variable([1, 2], dtype="int8")
    assert [value.dtype for value in _run(x.assign_add(3), x.assign([4, 5]))] == [np.int8] * 2
    with pytest.raises(TypeError, match="not compatible"):
        x.assign_add(1.5)


@pytest.mark.parametrize("value", [[1.0], np.ones((2, 2)), 1.0], ids=str)
def test_a_value_of_another_shape_cannot_be_assigned(value):
    x = tf.Variable([1.0, 2.0], name="x")
    with pytest.raises(ValueError, match=r"cannot assign a value of shape .* variable 'x'"):
        x.assign(value)


def test_an_update_that_would_change_the_shape_is_an_error():
    x = tf.Variable([1.0, 2.0], name="x")
    with pytest.raises(ValueError, match=r"update of shape \(2, 2\) does not fit variable 'x'"):
        x.assign_add(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"shape"):
        x.assign_add(np.ones(3))


def test_a_tensor_of_another_dtype_cannot_be_assigned():
    x = tf.Variable([1.0, 2.0], name="x")
    for change in (x.assign, x.assign_add, x.assign_sub):
        with pytest.raises(
            TypeError, match=r"variable 'x' .* has dtype float32, but the value has in"
        ):
            change(tf.constant([1, 2]))


def test_collections_list_variables_in_the_order_they_were_made():
    a, b = tf.Variable(1.0), tf.Variable(2.0, trainable=False)
    c = tf.Variable(3.0)
    assert tf.global_variables() == [a, b, c]
    assert tf.trainable_variables() == [a, c]
    assert [v.trainable for v in (a, b, c)] == [True, False, True]


def test_a_chosen_few_can_be_initialized():
    a, b = tf.Variable(1.0), tf.Variable(2.0)
    with tf.Session() as session:
        session.run(tf.variables_initializer([a], name="some"))
        assert session.run(a) == 1.0
        with pytest.raises(tf.errors.FailedPreconditionError):
            session.run(b)


def test_an_initializer_of_nothing_does_nothing():
    with tf.Session() as session:
        assert session.run(tf.global_variables_initializer()) is None


def test_initializing_again_starts_anew():
    x = tf.Variable(1.0)
    found = _run(x.assign_add(5.0), x.initializer, x)
    assert found == [6.0, None, 1.0]


def test_a_variable_can_be_loaded_with_an_array():
    x = tf.Variable([1.0, 2.0])
    with tf.Session() as session:
        x.load([3, 4], session)
        np.testing.assert_array_equal(x.eval(session), [3.0, 4.0])
        x.load(np.array([5.0, 6.0]))
        np.testing.assert_array_equal(x.eval(), [5.0, 6.0])
        with pytest.raises(ValueError, match="shape"):
            x.load([1.0])


def test_a_control_dependency_on_a_variable_can_be_met():
    x = tf.Variable(1.0)
    with tf.control_dependencies([x]):
        y = tf.constant(2.0) * 2
    with tf.control_dependencies([tf.group(x, y)]):
        z = tf.constant(3.0) * 2
    assert _run([y, z]) == [[4.0, 6.0]]


def test_a_variable_is_in_each_collection_once():
    keys = ["variables", "trainable_variables", "mine", "mine"]
    a = tf.Variable(1.0, collections=keys)
    b = tf.Variable(2.0, collections=["local_variables", "local_variables"], trainable=False)
    c = tf.Variable(3.0, collections=("trainable_variables",), trainable=False)
    d = tf.Variable(4.0, collections=[])
    assert tf.global_variables() == [a]
    assert tf.trainable_variables() == [a, c, d]
    assert tf.local_variables() == [b]
    assert tf.get_default_graph().get_collection("mine") == [a]
    with pytest.raises(TypeError, match="a list of names, got the text 'local_variables'"):
        tf.Variable(1.0, collections="local_variables")


def test_a_value_of_unknown_size_that_can_never_fit_is_refused_at_its_line():
    x = tf.Variable(np.ones((2, 3)), name="x")
    for shape in ((None,), (None, 4), (3, None)):
        with pytest.raises(ValueError, match="cannot assign a value of shape"):
            x.assign(tf.placeholder(tf.float32, shape))
        with pytest.raises(ValueError, match="an update of shape"):
            x.assign_add(tf.placeholder(tf.float32, shape))
    assert x.assign(tf.placeholder(tf.float32, (None, 3))).shape == (2, 3)


def test_what_a_queue_gives_in_a_function_can_be_assigned():
    with tf.connect():
        queue = tf.FIFOQueue(10, [tf.float32], [()])
        x = tf.Variable([0.0, 0.0], name="x")
        assign = tf.function(lambda: x.assign(queue.dequeue_up_to(2)))
        for value in (1.0, 2.0, 3.0):
            queue.put(value)
        assert assign().tolist() == [1, 2]
        queue.close()
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"shape \(2,\), got \(1,\)"):
            assign()
        assert x.numpy().tolist() == [1, 2]
