import threading

import numpy as np
import pytest

import jflow as tf
from jflow.testing import PATIENCE_S


def _in_thread(fun):
    """What `fun` returns on a thread of its own."""
    results = []
    thread = threading.Thread(target=lambda: results.append(fun()))
    thread.start()
    thread.join()
    return results[0]


def test_a_taken_name_gets_a_number():
    names = [tf.constant(1.0, name="x").op.name for _ in range(3)]
    assert names == ["x", "x_1", "x_2"]


def test_names_that_differ_only_in_case_are_one_name():
    names = [tf.constant(1.0, name=name).op.name for name in ("Loss", "loss", "LOSS")]
    assert names == ["Loss", "loss_1", "LOSS_2"]


def test_a_number_that_the_user_took_is_passed_over():
    names = [tf.constant(1.0, name=name).op.name for name in ("x_1", "x", "x", "x_1", "x")]
    assert names == ["x_1", "x", "x_2", "x_1_1", "x_3"]


def test_every_name_finds_its_operation():
    ops = [tf.constant(1.0, name=name).op for name in ("a", "A", "a_1", "a", "b/a", "a_2")]
    assert len({op.name.casefold() for op in ops}) == len(ops)
    graph = tf.get_default_graph()
    assert [graph.get_operation_by_name(op.name) for op in ops] == ops


@pytest.mark.parametrize("name", ["_bad", "a b", "-a", "/a", "a:0", "a$", " ", "é", "a\n"])
def test_a_malformed_name_is_an_error_that_quotes_it(name):
    with pytest.raises(ValueError, match="is not a valid node name") as raised:
        tf.constant(1.0, name=name)
    assert repr(name) in str(raised.value)


@pytest.mark.parametrize("name", ["a", ".a", "0", "a/b", "a-b", "a.b", "A_1", "a\\b"])
def test_letters_digits_and_a_few_signs_make_a_name(name):
    assert tf.constant(1.0, name=name).name == f"{name}:0"


def test_an_operation_is_called_after_its_function_unless_it_is_named():
    x = tf.constant([1.0, 2.0])
    assert tf.numpy.mean(x).op.name == "mean"
    assert tf.numpy.mean(x).op.name == "mean_1"
    assert tf.numpy.mean(x, name="loss").op.name == "loss"
    assert (x + 1).op.name == "add"


def test_a_function_without_a_proper_name_can_be_applied():
    graph = tf.get_default_graph()
    x = tf.constant(1.0)
    graph.apply(lambda a: a + 1, (x,))
    named = graph.apply(lambda a: a * 2, (x,), name="double")
    assert named.op.name == "double"


def test_the_type_of_an_operation_is_what_it_computes_whatever_its_name():
    x = tf.constant([1.0, 2.0])
    assert tf.numpy.mean(x, name="loss").op.type == "mean"
    assert tf.numpy.exp(x, name="e").op.type == "exp"


def test_the_default_graph_can_be_replaced_inside_a_block():
    outer = tf.get_default_graph()
    graph = tf.Graph()
    with graph.as_default() as inside:
        assert inside is tf.get_default_graph() is graph
        a = tf.constant(1.0)
    assert tf.get_default_graph() is outer
    assert graph.get_operations() == [a.op]
    assert outer.get_operations() == []


def test_a_thread_starts_at_the_global_graph_not_at_its_parents_block():
    global_graph = tf.get_default_graph()
    with tf.Graph().as_default():
        assert _in_thread(tf.get_default_graph) is global_graph


def test_blocks_of_different_threads_do_not_meet():
    inside, leave = threading.Event(), threading.Event()
    graph = tf.Graph()

    def hold():
        with graph.as_default():
            inside.set()
            leave.wait(PATIENCE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(PATIENCE_S)
    assert tf.get_default_graph() is not graph
    leave.set()
    thread.join()


def test_resetting_starts_an_empty_default_graph():
    before = tf.get_default_graph()
    tf.constant(1.0)
    tf.reset_default_graph()
    assert tf.get_default_graph() is not before
    assert tf.get_default_graph().get_operations() == []


def test_resetting_inside_a_block_is_an_error():
    with tf.Graph().as_default(), pytest.raises(AssertionError, match="as_default"):
        tf.reset_default_graph()


def test_a_finalized_graph_takes_no_more_operations():
    a = tf.constant(1.0)
    graph = tf.get_default_graph()
    assert not graph.finalized
    graph.finalize()
    assert graph.finalized
    for add in (lambda: a + 1, lambda: tf.constant(2.0), lambda: tf.Variable(1.0), tf.no_op):
        with pytest.raises(RuntimeError, match="Graph is finalized and cannot be modified"):
            add()
    assert graph.get_operations() == [a.op]


def test_operations_are_listed_in_the_order_they_were_made():
    a = tf.constant(1.0)
    b = tf.constant(2.0)
    c = a + b
    operations = tf.get_default_graph().get_operations()
    assert operations == [a.op, b.op, c.op]
    operations.clear()
    assert len(tf.get_default_graph().get_operations()) == 3


def test_a_tensor_is_found_by_operation_and_output():
    graph = tf.get_default_graph()
    halves = tf.numpy.split(tf.constant([1.0, 2.0]), 2, name="halves")
    assert [graph.get_tensor_by_name(f"halves:{i}") for i in (0, 1)] == halves


@pytest.mark.parametrize("name", ["x", "x:", "x:y", "x:-1", ":0:x"])
def test_a_tensor_name_of_another_form_is_a_value_error(name):
    tf.constant(1.0, name="x")
    with pytest.raises(ValueError, match="a tensor name is 'operation:index'"):
        tf.get_default_graph().get_tensor_by_name(name)


@pytest.mark.parametrize("name", ["y:0", "x:1", ":0"])
def test_a_tensor_that_is_not_there_is_a_key_error(name):
    tf.constant(1.0, name="x")
    with pytest.raises(KeyError, match=r"has no operation|has 1 outputs"):
        tf.get_default_graph().get_tensor_by_name(name)


def test_an_operation_that_is_not_there_is_a_key_error():
    with pytest.raises(KeyError, match="no operation 'x'"):
        tf.get_default_graph().get_operation_by_name("x")


def test_a_name_that_is_nearly_one_of_the_graph_is_told_of_it():
    tf.Variable(1.0, name="weights")
    with tf.Session() as session:
        for end in ("", ":0"):
            words = rf"no operation 'weigths'; did you mean 'weights{end}'\?"
            with pytest.raises(ValueError, match=words):
                session.run(f"weigths{end}")
        with pytest.raises(TypeError, match="did you mean 'weights:0'"):
            session.run(tf.constant(1.0), {"weight:0": 1.0})


def test_tensors_of_two_graphs_do_not_mix():
    with tf.Graph().as_default():
        foreign = tf.constant(1.0, name="foreign")
        variable = tf.Variable(1.0)
    mine = tf.constant(2.0)
    for mix in (
        lambda: mine + foreign,
        lambda: foreign + mine,
        lambda: tf.numpy.stack([mine, foreign]),
        lambda: tf.identity(foreign),
        lambda: mine * variable,
        lambda: tf.Variable(foreign),
        lambda: tf.Variable(1.0).assign(foreign),
    ):
        with pytest.raises(ValueError, match="belongs to another graph"):
            mix()


def test_tensors_know_shape_dtype_and_their_graph():
    x = tf.constant(np.zeros((2, 3), np.int8), name="x")
    assert (x.shape, x.ndim, x.dtype, x.name) == ((2, 3), 2, np.int8, "x:0")
    assert x.graph is x.op.graph is tf.get_default_graph()
    assert (x.op.outputs, x.index) == ((x,), 0)
    assert repr(x) == "<jflow.Tensor 'x:0' shape=(2, 3) dtype=int8>"
    assert repr(x.op) == "<jflow.Operation 'x' type=constant>"


def test_a_random_key_is_a_tensor_too():
    key = tf.random.key(0)
    assert key.shape == ()
    assert "key" in repr(key)


def test_the_inputs_of_an_operation_are_tensors_in_order():
    a, b = tf.constant(1.0), tf.constant(2.0)
    assert (a - b).op.inputs == (a, b)
    assert (a * a).op.inputs == (a, a)
    assert (a + 1).op.inputs == (a,)


def test_tensors_are_keys_by_identity():
    a, b = tf.constant(1.0), tf.constant(1.0)
    assert a == a  # noqa: PLR0124 - the comparison itself is tested
    assert a != b
    assert {a: 1, b: 2}[a] == 1


def test_a_collection_is_given_out_as_a_copy():
    graph = tf.get_default_graph()
    graph.add_to_collection("things", 1)
    graph.get_collection("things").append(2)
    assert graph.get_collection("things") == [1]
    assert graph.get_collection("nothing") == []


def test_threads_can_build_one_graph_together():
    graph = tf.get_default_graph()
    start = threading.Barrier(8)

    def build():
        start.wait()
        x = tf.constant(0.0, name="x")
        for _ in range(20):
            x = x + 1.0

    threads = [threading.Thread(target=build) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ops = graph.get_operations()
    assert len(ops) == 8 * 21
    assert len({op.name for op in ops}) == len(ops)
    position = {op: i for i, op in enumerate(ops)}
    assert all(position[t.op] < position[op] for op in ops for t in op.inputs)


def test_a_constant_keeps_its_value_when_the_array_it_came_from_changes():
    array = np.ones(2, np.float32)
    view = array.view()
    view.flags.writeable = False
    values = [tf.constant(array), tf.constant(view), tf.constant(array[:1], shape=(3,))]
    array[:] = 7.0
    for value in values:
        np.testing.assert_array_equal(value.op.eqn.params["value"], 1.0)
