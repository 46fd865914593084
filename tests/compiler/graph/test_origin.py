import inspect

import jflow as tf


def _line():
    """Where the caller calls this, as an operation's origin says it."""
    frame = inspect.currentframe().f_back
    return f"{__file__}:{frame.f_lineno} in {frame.f_code.co_name}"


def test_an_operation_remembers_the_line_of_the_users_file_that_made_it():
    ops = [
        (tf.constant(1.0).op, _line()),
        (tf.placeholder("float32", ()).op, _line()),
        ((tf.constant(1.0) + 1).op, _line()),
        (tf.numpy.mean(tf.constant([1.0])).op, _line()),
        (tf.numpy.linalg.norm(tf.constant([1.0])).op, _line()),
        (tf.Variable(1.0).op, _line()),
        (tf.Variable(1.0).initializer, _line()),
        (tf.Variable(1.0).assign_add(1.0).op, _line()),
        (tf.Variable(1.0).read_value().op, _line()),
        (tf.identity(1.0).op, _line()),
        (tf.group(tf.no_op()), _line()),
    ]
    assert [op.origin for op, _ in ops] == [line for _, line in ops]


def test_every_output_and_every_traced_operation_has_the_line_of_the_call():
    x = tf.constant([1.0, 2.0])
    before = len(tf.get_default_graph().get_operations())
    calls = [tf.lax.scan(lambda c, y: (c + y, c * y), tf.constant(0.0), x), _line()]
    made = tf.get_default_graph().get_operations()[before:]
    assert {op.origin for op in made} == {calls[-1]}


def test_a_gradient_has_the_line_that_asked_for_it():
    x = tf.constant(2.0)
    y = tf.numpy.sin(x) * x
    before = len(tf.get_default_graph().get_operations())
    calls = [tf.gradients(y, x), _line()]
    made = tf.get_default_graph().get_operations()[before:]
    assert made
    assert {op.origin for op in made} == {calls[-1]}


def test_a_function_that_builds_for_others_is_the_origin_of_what_it_builds():
    def layer(x):
        return tf.nn.relu(x), _line()

    out, line = layer(tf.constant(1.0))
    assert out.op.origin == line
    assert line.endswith(" in layer")


def test_an_operation_made_from_text_has_an_origin_too():
    scope = {"tf": tf}
    exec("\n\nx = tf.constant(1.0)", scope)
    assert scope["x"].op.origin == "<string>:3 in <module>"
