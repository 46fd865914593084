"""Graphs whose records do not fit together are refused before anything is compiled."""

import jax
import jax.extend.core as jex
import numpy as np
import pytest

import jflow as tf
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.verify import verify
from jflow.compiler.pipeline import StepRequest, prune_step
from jflow.errors import InvalidArgumentError


def _graph():
    """A placeholder, a variable, control inputs and a queue."""
    x = tf.placeholder("float32", (None, 3), name="x")
    v = tf.Variable(np.ones(3, np.float32), name="v")
    with tf.control_dependencies([v.assign_add(x[0], name="add")]):
        y = tf.nn.softmax(x * v, name="y")
    tf.FIFOQueue(3, "float32", (3,), name="q").enqueue(y[0], name="put")
    return tf.get_default_graph(), y


def test_a_graph_that_was_built_is_taken():
    graph, _ = _graph()
    verify(graph, graph.get_operations())
    verify(graph, [])


def _changed(op, **attributes):
    for name, value in attributes.items():
        setattr(op, name, value)


def _other():
    with tf.Graph().as_default():
        return tf.constant(1.0, name="elsewhere")


def _alone(op, name):
    return Operation(op.graph, name, op.eqn, op.inputs, (), None)


def _retyped(op):
    """The output of an operation with another type than its variable's."""
    eqn = op.eqn.replace(outvars=[jex.Var(jax.core.ShapedArray((4,), np.dtype("float32")))])
    _changed(op, eqn=eqn, outputs=(Tensor(op, 0, eqn.outvars[0]),))


CHANGES = {
    "belongs to another graph": lambda op: _changed(op, graph=tf.Graph()),
    "is not in its graph": lambda op: _changed(op, name="nowhere"),
    "has the name of another operation": lambda op: _changed(op, name="x"),
    "has other outputs than its equation": lambda op: _changed(op, outputs=()),
    "as its output 0": lambda op: _changed(op, outputs=(Tensor(op, 1, op.eqn.outvars[0]),)),
    "has other inputs than its equation": lambda op: _changed(op, inputs=()),
    "which is not an output of": lambda op: _changed(
        op, inputs=(Tensor(op.inputs[0].op, 0, op.inputs[0].var), *op.inputs[1:])
    ),
    "'elsewhere' (made at": lambda op: _changed(op, control_inputs=(_other().op,)),
    "there is a cycle": lambda op: _changed(
        op, control_inputs=(op.graph.get_operation_by_name("put"),)
    ),
    "'spare' (made at": lambda op: _changed(op, control_inputs=(_alone(op, "spare"),)),
}


@pytest.mark.parametrize("said", CHANGES)
def test_an_operation_that_was_changed_is_refused(said):
    graph, _ = _graph()
    ops = graph.get_operations()
    CHANGES[said](graph.get_operation_by_name("add"))
    with pytest.raises(InvalidArgumentError) as info:
        verify(graph, ops)
    assert said in info.value.message
    assert info.value.op is not None


def test_a_read_of_another_type_than_its_variable_is_refused():
    graph, _ = _graph()
    _retyped(graph.get_operation_by_name("v/read"))
    with pytest.raises(InvalidArgumentError, match=r"float32 \(3,\)"):
        verify(graph, graph.get_operations())


def test_an_operation_that_is_there_twice_is_refused():
    graph, y = _graph()
    with pytest.raises(InvalidArgumentError, match=r"'y' .* is there twice"):
        verify(graph, [*graph.get_operations(), y.op])


def test_an_operation_that_needs_itself_is_refused():
    graph, y = _graph()
    _changed(y.op, control_inputs=(y.op,))
    with pytest.raises(InvalidArgumentError, match="there is a cycle"):
        verify(graph, graph.get_operations())


def test_a_step_is_verified_before_it_is_compiled():
    graph, y = _graph()
    x = graph.get_tensor_by_name("x:0")
    _changed(y.op, inputs=())
    with pytest.raises(InvalidArgumentError, match="other inputs than its equation"):
        prune_step(graph, StepRequest((), (y,), (x,)))
    with tf.Session() as session, pytest.raises(InvalidArgumentError, match="other inputs"):
        session.run(y, {x: np.ones((2, 3))})
