"""`make_template`; the names are those of TensorFlow 2.21."""

import numpy as np
import pytest

import jflow as tf


def _scaled(x, name, by=2.0):
    w = tf.get_variable(name, [], initializer=tf.constant_initializer(by))
    tf.get_variable("count", [], trainable=False, initializer=tf.zeros_initializer())
    with tf.variable_scope("inner"):
        tf.get_variable("more", [])
    return tf.multiply(x, w, name="m")


def _names(variables):
    return [v.name for v in variables]


def test_all_calls_use_the_variables_of_the_first():
    scale = tf.make_template("scale", _scaled, name="w", by=3.0)
    assert scale.variables == []
    assert scale.variable_scope is scale.variable_scope_name is None
    first, second = scale(tf.constant(1.0)), scale(x=tf.constant(2.0))
    assert [first.name, second.name] == ["scale/m:0", "scale_1/m:0"]
    assert _names(scale.variables) == ["scale/w:0", "scale/count:0", "scale/inner/more:0"]
    assert _names(scale.trainable_variables) == ["scale/w:0", "scale/inner/more:0"]
    assert _names(scale.non_trainable_variables) == ["scale/count:0"]
    assert (scale.name, scale.variable_scope_name) == ("scale", "scale/")
    assert scale.var_scope.name == "scale"
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert np.array_equal(session.run([first, second]), [3.0, 6.0])
        session.run(scale.variables[0].assign(1.0))
        assert np.array_equal(session.run([first, second]), [1.0, 2.0])


def test_templates_of_one_name_have_scopes_of_their_own():
    with tf.variable_scope("outer") as outer:
        early = tf.make_template("t", _scaled, name="w", create_scope_now_=True)
        late = tf.make_template("t", _scaled, name="w")
        late(1.0)
    early(1.0)
    early(1.0)
    assert (early.variable_scope.name, late.variable_scope.name) == ("outer/t", "outer/t_1")
    with tf.variable_scope(outer, reuse=True):
        again = tf.make_template("t", _scaled, name="w", create_scope_now_=True)
        again(1.0)
    assert again.variables == late.variables


def test_a_unique_name_is_taken_once():
    tf.make_template("t", _scaled, name="w", unique_name_="only")(1.0)
    with pytest.raises(ValueError, match="only/w"):
        tf.make_template("t", _scaled, name="w", unique_name_="only")(1.0)


def test_later_calls_make_no_trainable_variables():
    state = tf.make_template("s", lambda: tf.Variable(1.0, name="v", trainable=False))
    assert [state().name, state().name] == ["s/v:0", "s_1/v:0"]
    weight = tf.make_template("w", lambda: tf.Variable(1.0, name="v"))
    weight()
    with pytest.raises(ValueError, match=r"template 'w' has made .*'w_1/v:0'.* get_variable"):
        weight()
    other = tf.make_template("n", lambda name: tf.get_variable(name, []))
    other("a")
    with pytest.raises(ValueError, match="n/b"):
        other("b")
    with pytest.raises(ValueError, match="needs a name"):
        tf.make_template(None, _scaled)


def test_templates_are_nested_and_have_getters():
    inner = tf.make_template("i", _scaled, name="w")
    outer = tf.make_template("o", lambda x: inner(x) + tf.get_variable("z", []))
    assert [outer(1.0).name, outer(1.0).name] == ["o/add:0", "o_1/add:0"]
    # The scope of a template is where it is called first.
    assert _names(outer.variables) == ["o/i/w:0", "o/i/count:0", "o/i/inner/more:0", "o/z:0"]

    def renamed(getter, name, *args, **kwargs):
        return getter(f"{name}_x", *args, **kwargs)

    got = tf.make_template("g", lambda: tf.get_variable("q", []), custom_getter_=renamed)
    assert got() is got()
    assert _names(got.weights) == ["g/q_x:0"]
