"""`InteractiveSession`, and the blocks of a graph as its methods."""

import threading
import warnings

import pytest

import jflow as tf


def test_it_is_the_default_session_until_it_is_closed():
    x = tf.constant(2.0)
    session = tf.InteractiveSession()
    try:
        assert tf.get_default_session() is session
        assert x.eval() == 2.0
        with tf.Session() as inner:
            assert tf.get_default_session() is inner
        assert tf.get_default_session() is session
    finally:
        session.close()
    assert tf.get_default_session() is None
    session.close()
    with pytest.raises(ValueError, match="no default session"):
        x.eval()


def test_its_graph_is_the_default_graph():
    graph = tf.Graph()
    session = tf.InteractiveSession(graph=graph)
    assert tf.get_default_graph() is graph
    assert (tf.constant(1.0) + 1.0).eval() == 2.0
    session.close()
    assert tf.get_default_graph() is not graph


def test_a_second_one_warns_and_they_may_be_closed_in_any_order():
    first = tf.InteractiveSession()
    with pytest.warns(UserWarning, match="already active"):
        second = tf.InteractiveSession()
    first.close()
    assert tf.get_default_session() is second
    second.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tf.InteractiveSession().close()


def test_it_may_be_closed_inside_of_a_block():
    session = tf.InteractiveSession()
    with tf.Session() as inner:
        session.close()
        assert tf.get_default_session() is inner
    assert tf.get_default_session() is None


def test_another_thread_may_close_it():
    graph = tf.Graph()
    with tf.Session() as outer:
        x = tf.constant(2.0)
        session = tf.InteractiveSession(graph=graph)
        closing = threading.Thread(target=session.close)
        closing.start()
        closing.join()
        assert tf.get_default_session() is outer
        assert tf.get_default_graph() is not graph
        assert x.eval() == 2.0
    session.close()


def test_the_blocks_of_a_graph_are_its_methods():
    graph = tf.Graph()
    with graph.as_default():
        first = tf.constant(1.0)
        with graph.name_scope("a") as prefix, graph.device("/cpu:1"), graph.container("box"):
            assert (prefix, graph.get_name_scope()) == ("a/", "a")
            with graph.control_dependencies([first]):
                x = tf.constant(2.0, name="x")
            v = tf.Variable(0.0, name="v")
        with graph.colocate_with(x):
            y = tf.constant(3.0)
        with graph.control_dependencies([x]), graph.control_dependencies(None):
            z = tf.constant(4.0)
    assert (x.name, x.device) == ("a/x:0", "/device:CPU:1")
    assert x.op.control_inputs == (first.op,)
    assert v.initializer.name.startswith("a/v")
    assert y.op.colocation_groups() == [b"loc:@a/x"]
    assert z.op.control_inputs == ()
    with pytest.raises(ValueError, match="not a container name"):
        graph.container("-")
    with pytest.raises(TypeError, match="control input"):
        graph.control_dependencies([1])


def test_an_element_is_found_by_what_stands_for_it():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.constant(1.0, name="x")
        v = tf.Variable(0.0, name="v")
    assert graph.as_graph_element("x:0") is x
    assert graph.as_graph_element("x") is x.op
    assert graph.as_graph_element(x) is x
    assert graph.as_graph_element(v).graph is graph
    with pytest.raises(TypeError, match="into a Tensor"):
        graph.as_graph_element("x", allow_operation=False)
    with pytest.raises(TypeError, match="into an Operation"):
        graph.as_graph_element(x, allow_tensor=False)
    with pytest.raises(TypeError, match="graph element"):
        graph.as_graph_element(3)
    with pytest.raises(KeyError):
        graph.as_graph_element("nothing")
    with pytest.raises(ValueError, match="not an element"):
        graph.as_graph_element(tf.constant(1.0))
    with pytest.raises(ValueError, match="both be False"):
        graph.as_graph_element(x, allow_tensor=False, allow_operation=False)
