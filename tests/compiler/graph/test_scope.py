import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.base.cluster import DeviceSpec


def _op():
    return tf.constant(1.0).op


# Devices


def test_without_a_block_an_operation_asks_for_no_device():
    assert (_op().device, _op().spec) == ("", DeviceSpec())


def test_an_inner_device_scope_fills_only_its_own_fields():
    with tf.device("/job:ps/task:0"):
        with tf.device("/cpu:0"):
            assert _op().device == "/job:ps/task:0/device:CPU:0"
        assert _op().device == "/job:ps/task:0"


def test_an_inner_device_scope_wins_where_both_say_something():
    with tf.device("/job:ps/task:0/cpu:0"), tf.device("/job:worker/gpu:1"):
        assert _op().device == "/job:worker/task:0/device:GPU:1"


def test_no_device_forgets_all_outer_blocks():
    with tf.device("/job:ps/task:3"), tf.device("/cpu:0"):
        with tf.device(None):
            assert _op().device == ""
            with tf.device("/gpu:0"):
                assert _op().device == "/device:GPU:0"
        assert _op().device == "/job:ps/task:3/device:CPU:0"


def test_a_star_leaves_the_number_open():
    with tf.device("/gpu:*"):
        assert _op().spec == DeviceSpec(type="GPU")


def test_an_empty_name_changes_nothing():
    with tf.device("/cpu:1"), tf.device(""):
        assert _op().device == "/device:CPU:1"


def test_a_device_can_be_given_as_a_spec():
    with tf.device(DeviceSpec("ps", 1)):
        assert _op().device == "/job:ps/task:1"


def test_the_outer_device_comes_back_after_an_error():
    with tf.device("/cpu:1"):
        with pytest.raises(KeyError), tf.device("/cpu:2"):
            raise KeyError
        assert _op().device == "/device:CPU:1"
    assert _op().device == ""


@pytest.mark.parametrize("name", ["cpu0", "/job:", "/disk:0"])
def test_a_malformed_device_is_a_value_error(name):
    with pytest.raises(ValueError, match="is not a device name"):
        tf.device(name)


@pytest.mark.parametrize("name", [0, ["/cpu:0"], b"/cpu:0"])
def test_a_device_of_another_type_is_a_type_error(name):
    with pytest.raises(TypeError, match="expected a device name, a function"):
        tf.device(name)


@given(st.text() | st.integers() | st.binary() | st.lists(st.text()) | st.booleans())
def test_whatever_is_no_device_is_refused_before_the_block(value):
    try:
        block = tf.device(value)
    except (ValueError, TypeError):
        return
    with block:
        assert _op().spec == DeviceSpec.parse(value)


def test_a_device_scope_belongs_to_its_thread():
    devices = []
    with tf.device("/cpu:1"):
        thread = threading.Thread(target=lambda: devices.append(_op().device))
        thread.start()
        thread.join()
    assert devices == [""]


def test_a_device_scope_reaches_every_kind_of_operation():
    x = tf.constant([1.0, 2.0])
    with tf.device("/cpu:1"):
        variable = tf.Variable(x)
        tensors = [
            tf.placeholder("float32", ()),
            x + 1,
            tf.numpy.mean(x),
            tf.identity(x),
            variable.read_value(),
            variable.assign_add(x),
        ]
        ops = [tf.no_op(), tf.group(x), variable.op, variable.initializer]
    assert {item.device for item in [*tensors, *ops]} == {"/device:CPU:1"}
    assert variable.device == "/device:CPU:1"


def test_the_same_function_under_other_devices_asks_for_those():
    x = tf.constant([1.0, 2.0])
    requested = ["/device:CPU:1", "", "/device:CPU:2", "/job:ps", "", "/device:CPU:1"]
    for call in (tf.numpy.exp, tf.numpy.mean, tf.nn.softmax, lambda t: t + 1):
        found = []
        for name in requested:
            with tf.device(name):
                found.append(call(x).device)
        assert found == requested


# Containers


@pytest.mark.parametrize("name", ["my_problem_1", "a", "0", ".a", "a-b.c/d", ""])
def test_a_variable_lives_in_the_container_of_its_block(name):
    with tf.container(name):
        variable = tf.Variable(1.0, name="x")
    assert variable.container == name
    assert variable.op.name == "x"


@pytest.mark.parametrize("name", ["_a", "-a", "/a", " ", "a b", "a\n", "a:b", "é", "\0"])
def test_a_malformed_container_is_a_value_error(name):
    with pytest.raises(ValueError, match="is not a container name") as raised:
        tf.container(name)
    assert repr(name) in str(raised.value)


def test_the_inner_container_replaces_the_outer_one():
    with tf.container("outer"):
        with tf.container("inner"):
            assert tf.Variable(1.0).container == "inner"
            with tf.container(""):
                assert tf.Variable(1.0).container == ""
        assert tf.Variable(1.0).container == "outer"
    assert tf.Variable(1.0).container == ""


# Names


def test_a_name_scope_is_a_prefix_and_yields_it():
    with tf.name_scope("a") as prefix:
        assert prefix == "a/"
        assert tf.constant(1.0, name="x").op.name == "a/x"
        with tf.name_scope("b") as inner:
            assert inner == "a/b/"
            assert tf.constant(1.0, name="x").op.name == "a/b/x"
    assert tf.constant(1.0, name="x").op.name == "x"


def test_opening_a_name_scope_again_gives_it_a_number():
    prefixes = []
    for _ in range(3):
        with tf.name_scope("a") as prefix:
            prefixes.append(prefix)
    assert prefixes == ["a/", "a_1/", "a_2/"]


def test_a_name_scope_that_ends_in_a_slash_is_entered_as_it_is():
    with tf.name_scope("a") as prefix:
        tf.constant(1.0, name="x")
    with tf.name_scope("b"), tf.name_scope(prefix) as again:
        assert again == "a/"
        assert tf.constant(1.0, name="x").op.name == "a/x_1"


def test_an_operation_with_the_name_of_a_scope_is_called_like_it():
    with tf.name_scope("outer"), tf.name_scope("block") as scope:
        x = tf.constant(1.0)
        assert tf.group(x, name=scope).name == "outer/block"
        assert tf.identity(x, name=scope).op.name == "outer/block_1"
        assert tf.identity(x, name="other/").op.name == "other"


@pytest.mark.parametrize("root", [None, ""])
def test_an_empty_name_scope_goes_back_to_the_root(root):
    with tf.name_scope("a"), tf.name_scope(root) as prefix:
        assert prefix == ""
        assert tf.constant(1.0, name="x").op.name == "x"


def test_a_scope_and_an_operation_do_not_share_a_name():
    with tf.name_scope("a"):
        pass
    assert tf.constant(1.0, name="a").op.name == "a_1"


@pytest.mark.parametrize("name", ["_a", "a b", "a:0"])
def test_a_malformed_name_scope_is_a_value_error(name):
    with pytest.raises(ValueError, match="is not a valid node name"), tf.name_scope(name):
        pass


def test_the_outer_name_scope_comes_back_after_an_error():
    with tf.name_scope("a"):
        with pytest.raises(KeyError), tf.name_scope("b"):
            raise KeyError
        assert tf.constant(1.0, name="x").op.name == "a/x"


def test_a_name_scope_belongs_to_its_thread():
    names = []
    with tf.name_scope("a"):
        thread = threading.Thread(target=lambda: names.append(tf.constant(1.0, name="x").op.name))
        thread.start()
        thread.join()
    assert names == ["x"]


def test_a_name_scope_belongs_to_its_graph():
    with tf.name_scope("a"), tf.Graph().as_default():
        assert tf.constant(1.0, name="x").op.name == "x"


# Control dependencies


def test_operations_of_a_block_run_after_its_control_inputs():
    a, b = tf.constant(1.0), tf.constant(2.0)
    with tf.control_dependencies([a, b.op]):
        c = tf.constant(3.0)
    after = tf.constant(4.0)
    assert c.op.control_inputs == (a.op, b.op)
    assert after.op.control_inputs == ()


def test_control_dependencies_of_nested_blocks_add_up():
    a, b, c = (tf.constant(1.0) for _ in range(3))
    with tf.control_dependencies([a]):
        with tf.control_dependencies([b, a]):
            inner = _op()
        with tf.control_dependencies([c]):
            other = _op()
    assert inner.control_inputs == (a.op, b.op)
    assert other.control_inputs == (a.op, c.op)


def test_no_control_dependencies_forget_the_outer_blocks():
    a, b = tf.constant(1.0), tf.constant(2.0)
    with tf.control_dependencies([a]):
        with tf.control_dependencies(None):
            free = _op()
            with tf.control_dependencies([b]):
                inner = _op()
        back = _op()
    assert free.control_inputs == ()
    assert inner.control_inputs == (b.op,)
    assert back.control_inputs == (a.op,)


def test_a_control_input_that_is_a_data_input_is_dropped():
    a, b = tf.constant(1.0), tf.constant(2.0)
    with tf.control_dependencies([a, b]):
        assert (a + 1).op.control_inputs == (b.op,)
        assert (a + b).op.control_inputs == ()


def test_an_older_tensor_gets_no_control_input():
    a, b = tf.constant(1.0), tf.constant(2.0)
    with tf.control_dependencies([a]):
        pass
    assert b.op.control_inputs == ()


def test_a_variable_and_its_plain_read_do_not_wait_for_the_block_they_are_made_in():
    a = tf.constant(1.0)
    with tf.control_dependencies([a]):
        variable = tf.Variable(lambda: tf.constant(2.0))
        fresh = variable.read_value()
    for op in (variable.op, variable.initializer, variable.value().op, variable.initial_value.op):
        assert op.control_inputs == ()
    assert fresh.op.control_inputs == (a.op,)


@pytest.mark.parametrize("value", ["x", 1.0, None, object()])
def test_a_control_input_of_another_type_is_a_type_error(value):
    with pytest.raises(TypeError, match="a control input must be an operation or a tensor"):
        tf.control_dependencies([value])


def test_a_block_that_decorates_a_recursive_function_ends_each_time() -> None:
    @tf.container("inside")
    def depth(n: int) -> int:
        assert tf.get_default_graph().scopes.here.container == "inside"
        return n if n == 0 else 1 + depth(n - 1)

    assert depth(3) == 3
    assert tf.get_default_graph().scopes.here.container == ""
