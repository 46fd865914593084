"""Variable scopes: names, reuse, inherited defaults, custom getters and messages."""

from __future__ import annotations

import threading

import jax
import numpy as np
import pytest

import jflow as tf


def test_a_scope_is_a_prefix_of_variables_and_operations() -> None:
    with tf.variable_scope("a") as outer, tf.variable_scope("b") as scope:
        w = tf.get_variable("w", [2])
        plain = tf.Variable(1.0, name="x")
        total = tf.numpy.add(plain, 1.0)
    assert (outer.name, scope.name, scope.original_name_scope) == ("a", "a/b", "a/b/")
    assert (w.name, plain.name, total.op.name) == ("a/b/w:0", "a/b/x:0", "a/b/add")
    assert tf.get_variable_scope().name == ""


def test_opened_again_the_names_of_operations_get_a_number_and_those_of_variables_do_not() -> None:
    with tf.variable_scope("vs"):
        first = tf.get_variable("w", [2])
    with tf.variable_scope("vs", reuse=True):
        assert tf.get_variable("w", [2]) is first
        other = tf.Variable(1.0, name="w")
        total = tf.numpy.add(other, 1.0)
    assert (first.name, other.name, total.op.name) == ("vs/w:0", "vs_1/w:0", "vs_1/add")


def test_get_variable_ignores_name_scopes_and_variables_honour_them() -> None:
    with tf.name_scope("n"), tf.variable_scope("vs"), tf.name_scope("inner"):
        got = tf.get_variable("w", [2])
        made = tf.Variable(1.0, name="w")
    assert (got.name, made.name) == ("vs/w:0", "n/vs/inner/w:0")


def test_a_default_name_is_made_unique() -> None:
    names = []
    for _ in range(2):
        with tf.variable_scope(None, default_name="d") as scope:
            names.append(scope.name)
            with tf.variable_scope(None, "inner") as inner:
                names.append(inner.name)
    with tf.variable_scope("given", default_name="d") as scope:
        names.append(scope.name)
    assert names == ["d", "d/inner", "d_1", "d_1/inner", "given"]


def test_a_scope_can_be_entered_again_from_anywhere() -> None:
    with tf.variable_scope("a", initializer=tf.ones_initializer()) as a:
        first = tf.get_variable("w", [2])
    with tf.variable_scope("other"), tf.variable_scope(a, reuse=True) as again:
        assert again.name == "a"
        assert tf.get_variable("w") is first
        assert again.initializer is a.initializer
        assert tf.numpy.add(first, 1.0).op.name == "other/a/add"
    with tf.variable_scope("n"), tf.variable_scope(a, auxiliary_name_scope=False):
        assert tf.get_variable("v", [2]).name == "a/v:0"
        assert tf.numpy.add(first, 1.0).op.name == "n/add"


def test_without_reuse_an_existing_variable_is_an_error_with_its_line() -> None:
    with tf.variable_scope("vs"):
        tf.get_variable("w", [2])
        with pytest.raises(
            ValueError,
            match=r"Variable vs/w already exists, disallowed\. Did you mean to set reuse=True or "
            r"reuse=\S+AUTO_REUSE in VarScope\? Originally defined at: .*test_scope.py:\d+",
        ):
            tf.get_variable("w", [2])


def test_with_reuse_a_missing_variable_is_an_error() -> None:
    tf.Variable(1.0, name="plain")
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        for name in ("w", "plain"):
            with pytest.raises(
                ValueError,
                match=f"Variable {name} does not exist, or was not created with .*get_variable",
            ):
                tf.get_variable(name, [2])


def test_reuse_checks_shape_and_dtype() -> None:
    with tf.variable_scope("s"):
        w = tf.get_variable("w", [2, 3])
        tf.get_variable_scope().reuse_variables()
        assert tf.get_variable("w", [None, 3]) is w
        with pytest.raises(
            ValueError,
            match=r"Trying to share variable s/w, but specified shape \(3, 3\) and found shape "
            r"\(2, 3\)",
        ):
            tf.get_variable("w", [3, 3])
        with pytest.raises(
            ValueError, match="s/w, but specified dtype int32 and found dtype float32"
        ):
            tf.get_variable("w", [2, 3], dtype=tf.int32)


def test_auto_reuse_makes_a_variable_once() -> None:
    made = []
    for _ in range(2):
        with tf.variable_scope("s", reuse=tf.AUTO_REUSE), tf.variable_scope("inherits"):
            made.append(tf.get_variable("w", initializer=7))
    assert made[0] is made[1]
    assert made[0].dtype == np.int32
    assert tf.global_variables() == [made[0]]


def test_reuse_is_inherited_and_false_does_not_end_it() -> None:
    w = tf.get_variable("a/b/w", [2])
    with tf.variable_scope("a", reuse=True), tf.variable_scope("b", reuse=False) as scope:
        assert scope.reuse is True
        assert tf.get_variable("w", [2]) is w


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name_or_scope": 3}, TypeError, "expected the name of a variable scope, or a scope"),
        ({"name_or_scope": None}, TypeError, "name_or_scope is required"),
        ({"name_or_scope": None, "default_name": "d", "reuse": True}, ValueError, "reuse=True"),
        ({"name_or_scope": "a", "reuse": "yes"}, ValueError, "must be True or False or None"),
        ({"name_or_scope": "a b"}, ValueError, "is not a valid node name"),
    ],
    ids=str,
)
def test_a_malformed_scope_is_refused(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message), tf.variable_scope(**arguments):  # type: ignore[arg-type]
        pass


def test_scopes_hand_down_their_defaults() -> None:
    def half(value: tf.Tensor) -> tf.Tensor:
        return value / 2

    parts = tf.fixed_size_partitioner(2)
    with tf.variable_scope(
        "a", initializer=tf.constant_initializer(3), dtype=tf.float16, constraint=half
    ):
        with tf.variable_scope("b", partitioner=parts, regularizer=tf.numpy.sum) as b:
            whole = tf.get_variable("w", [4, 2])
            scalar = tf.get_variable("s", [], regularizer=tf.no_regularizer)
            other = tf.get_variable("o", [4], dtype=tf.float32, initializer=tf.zeros_initializer())
        plain = tf.get_variable("p", [2])
    assert [part.name for part in whole] == ["a/b/w/part_0:0", "a/b/w/part_1:0"]
    assert (whole.dtype, scalar.dtype, other.dtype) == (np.float16, np.float16, np.float32)
    assert (scalar.constraint, plain.constraint) == (half, half)
    assert (b.partitioner, plain.shape) == (parts, (2,))
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert len(losses) == 4  # of the parts of w and o
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(whole).tolist() == [[3.0, 3.0]] * 4
        assert session.run(losses) == [12.0, 12.0, 0.0, 0.0]
        assert session.run([scalar, other])[1].tolist() == [0.0] * 4


def test_a_scope_s_defaults_can_be_set_and_its_variables_listed() -> None:
    with tf.variable_scope("a") as scope:
        scope.set_initializer(tf.ones_initializer())
        scope.set_dtype(tf.int32)
        w = tf.get_variable("w", [2])
        own = tf.get_local_variable("own", [2])
    tf.get_variable("a_b", [2])
    assert w.dtype == np.int32
    assert scope.global_variables() == scope.trainable_variables() == [w]
    assert scope.local_variables() == [own]
    assert tf.global_variables("a") != tf.global_variables("a/") == [w]


def test_custom_getters_call_each_other_from_the_inside_out() -> None:
    calls = []

    def getter(label: str):
        def get(getter, name, *args, **kwargs):
            calls.append((label, name, kwargs["shape"]))
            return getter(name, *args, **kwargs)

        return get

    with tf.variable_scope("a", custom_getter=getter("outer")):
        with tf.variable_scope("b", custom_getter=getter("inner")):
            w = tf.get_variable("w", [2])
        renamed = tf.get_variable(
            "v", [2], custom_getter=lambda get, name, **kwargs: get(f"{name}_own", **kwargs)
        )
    assert calls == [("inner", "a/b/w", [2]), ("outer", "a/b/w", [2]), ("outer", "a/v_own", [2])]
    assert (w.name, renamed.name) == ("a/b/w:0", "a/v_own:0")


def test_a_value_as_initializer_gives_shape_and_dtype() -> None:
    w = tf.get_variable("w", initializer=np.ones((2, 3), np.int32))
    v = tf.get_variable("v", initializer=lambda: tf.constant([1.0, 2.0]))
    assert (w.shape, w.dtype, v.shape) == ((2, 3), np.int32, (2,))
    with pytest.raises(ValueError, match="If initializer is a constant, do not specify shape"):
        tf.get_variable("x", [2], initializer=tf.constant([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"Initializer type 'float32' and explicit dtype 'int32'"):
        tf.get_variable("x", dtype=tf.int32, initializer=tf.constant(1.0))
    with pytest.raises(ValueError, match="x did not get an initializer, so its `shape` argument"):
        tf.get_variable("x")
    with pytest.raises(ValueError, match="must be fully defined"):
        tf.get_variable("x", [None, 2])
    with pytest.raises(TypeError, match="expected the name of a variable"):
        tf.get_variable(3)  # type: ignore[arg-type]


def test_scopes_belong_to_a_graph_and_a_thread() -> None:
    names = []

    def name() -> None:
        names.append(tf.get_variable_scope().name)

    with tf.variable_scope("a"):
        with tf.Graph().as_default():
            name()
        thread = threading.Thread(target=name)
        thread.start()
        thread.join()
        name()
    assert names == ["", "", "a"]


def test_the_scope_around_comes_back_after_an_error() -> None:
    with tf.variable_scope("a"):
        with pytest.raises(KeyError), tf.variable_scope("b"):
            raise KeyError
        assert tf.get_variable("w", [1]).name == "a/w:0"


def test_inside_a_connection_variables_are_eager() -> None:
    with tf.connect(), tf.variable_scope("layer"):
        w = tf.get_variable("w", [3], initializer=tf.constant_initializer([1, 2, 3]))
        b = tf.get_variable("b", [2, 2], initializer=jax.nn.initializers.ones)
        assert w.is_eager
        assert (w.name, w.numpy().tolist()) == ("layer/w:0", [1.0, 2.0, 3.0])
        w.assign([4.0, 5.0, 6.0])
        again = tf.get_variable("w", [3])
        assert again.numpy().tolist() == [4.0, 5.0, 6.0]
        assert b.numpy().tolist() == [[1.0, 1.0], [1.0, 1.0]]
        with pytest.raises(ValueError, match="is eager and cannot be partitioned"):
            tf.get_variable("p", [4], partitioner=tf.fixed_size_partitioner(2))
