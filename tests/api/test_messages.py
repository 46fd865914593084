"""Mistakes of newcomers: the class of each error, and that it says what to write instead."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.client.variables.sharded import ShardedVariable
from jflow.testing import BackendUnderTest
from jflow.training.coordinator.remote_value import RemoteValue

ARRAY = np.ones(2)

# What is written, the class of the error, and the words that say what to write instead.
WITHOUT_VALUE: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "np.sin(x)": (np.sin, TypeError, "jflow.numpy"),
    "np.sum(x)": (np.sum, TypeError, "jflow.numpy"),
    "np.mean(x)": (np.mean, TypeError, "jflow.numpy"),
    "np.add(array, x)": (lambda x: np.add(ARRAY, x), TypeError, "jflow.numpy"),
    "np.asarray(x)": (np.asarray, TypeError, "jflow.numpy"),
    "np.array([x])": (lambda x: np.array([x]), TypeError, "jflow.numpy"),
    "array[x]": (lambda x: ARRAY[x], TypeError, "jflow.numpy"),
    "jnp.sin(x)": (jnp.sin, ValueError, "jflow.numpy"),
    "jax.nn.relu(x)": (jax.nn.relu, ValueError, "jflow.nn"),
    "jax.lax.exp(x)": (jax.lax.exp, ValueError, "jflow.lax"),
    "jax.jit(f)(x)": (jax.jit(lambda x: x), ValueError, "tensor.graph.apply"),
    "float(x)": (float, TypeError, "jflow.cast"),
    "int(x)": (int, TypeError, "jflow.cast"),
    "complex(x)": (complex, TypeError, "jflow.cast"),
    "round(x)": (round, TypeError, "jflow.numpy"),
    "math.sin(x)": (math.sin, TypeError, "jflow.numpy in place of math"),
    "math.floor(x)": (math.floor, TypeError, "jflow.numpy in place of math"),
    "'%f' % x": (lambda x: "%f" % x, TypeError, "session.run"),  # noqa: UP031
    "f'{x:.2f}'": (lambda x: f"{x:.2f}", TypeError, "cannot be formatted; fetch it"),
    "range(x)": (range, TypeError, "jflow.lax.fori_loop"),
    "[1, 2][x]": (lambda x: [1, 2][x], TypeError, "jflow.numpy.take"),
    "if x": (bool, TypeError, "jflow.numpy.where"),
    "min(x, 1)": (lambda x: min(x, 1), TypeError, "jflow.numpy.where"),
    "list(x)": (list, TypeError, "jflow.numpy.unstack"),
    "1.0 in x": (lambda x: 1.0 in x, TypeError, "jflow.numpy.isin"),
}
NO_OPERANDS: dict[str, Callable[[Any], Any]] = {
    "x + 'a'": lambda x: x + "a",
    "'a' + x": lambda x: "a" + x,
    "x < 'a'": lambda x: x < "a",
    "x + None": lambda x: x + None,
    "x * {}": lambda x: x * {},
    "object() * x": lambda x: object() * x,
    "x + queue": lambda x: x + tf.FIFOQueue(1, tf.float32),
}


def tensor() -> Any:
    return tf.placeholder(tf.float32, (2,), name="x")


def variable() -> Any:
    return tf.Variable([1.0, 2.0], name="x")


@pytest.mark.parametrize("written", WITHOUT_VALUE)
@pytest.mark.parametrize("make", [tensor, variable])
def test_what_needs_a_value_says_what_to_write_in_graph_code(
    make: Callable[[], Any], written: str
) -> None:
    use, kind, words = WITHOUT_VALUE[written]
    if make is variable and words == "tensor.graph.apply":
        words = "pass its value()"
    with pytest.raises(kind) as raised:
        use(make())
    assert "x" in str(raised.value)
    assert words in str(raised.value)


@pytest.mark.parametrize("written", NO_OPERANDS)
def test_an_operand_that_is_no_number_is_named_as_the_user_wrote_it(written: str) -> None:
    for make in (tensor, variable):
        with pytest.raises(TypeError) as raised:
            NO_OPERANDS[written](make())
        message = str(raised.value)
        assert "Tracer" not in message
        expected = "expected a number|unsupported operand|take an element first"
        assert any(words in message for words in expected.split("|")), message


def test_text_beside_a_tensor_is_joined_by_string_join() -> None:
    with pytest.raises(TypeError, match=r"got 'a' of type str; .* jflow.string_join\(\[jflow.as_s"):
        tensor() + "a"
    with pytest.raises(TypeError, match=r"jflow.string_join\(\[the tensor"):
        tf.constant("b") + "a"


def test_an_operand_with_operators_of_its_own_gets_the_tensor() -> None:
    class Scale:
        def __rmul__(self, other: Any) -> Any:
            return other * 3.0

    product = tf.constant(2.0) * Scale()
    with tf.Session() as session:
        assert session.run(product) == 6.0


def test_parts_and_rows_are_operands_of_each_other() -> None:
    part = tf.get_variable("p", [4], partitioner=tf.fixed_size_partitioner(2))
    table = tf.Variable(np.ones((3, 1), np.float32))
    (rows,) = tf.gradients(tf.numpy.sum(tf.nn.embedding_lookup(table, tf.constant([1]))), table)
    assert (part + part).shape == (4,)
    assert (rows + rows).shape == (3, 1)


def test_an_array_of_jax_leaves_its_operators_to_a_variable() -> None:
    with tf.Session() as session:
        x = variable()
        session.run(x.initializer)
        assert session.run(jnp.ones(2) + x).tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("reshape", "jflow.numpy.reshape"),
        ("mean", "jflow.numpy.mean"),
        ("T", "jflow.numpy.transpose"),
        ("astype", "jflow.cast"),
        ("item", "session.run"),
    ],
)
def test_an_attribute_of_arrays_says_which_function_does_the_same(name: str, instead: str) -> None:
    for make in (tensor, variable):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; use {instead}"):
            getattr(make(), name)
    assert not hasattr(tensor(), "not_of_arrays")
    with tf.connect(), pytest.raises(AttributeError, match="is eager and has no operation"):
        tf.Variable(1.0).op  # noqa: B018 - its own message


def test_a_dtype_that_is_none_says_which_there_are() -> None:
    with pytest.raises(
        TypeError, match=r"'flaot32' is not a dtype of tensors; did you mean 'float"
    ):
        tf.placeholder("flaot32")
    with pytest.raises(
        TypeError, match=r"\(2, 3\) is not a dtype of tensors; expected one of bool"
    ):
        tf.placeholder((2, 3))
    with pytest.raises(TypeError, match="expected numbers or booleans for float32, got text: 'a'"):
        tf.constant("a", tf.float32)


def test_the_length_of_a_tensor_is_its_first_size_if_that_is_known() -> None:
    assert len(tensor()) == 2
    with pytest.raises(TypeError, match=r"use its shape\[0\]"):
        len(tf.placeholder(tf.float32, (None, 2)))
    with pytest.raises(TypeError, match="which is a scalar"):
        len(tf.constant(1.0))
    with pytest.raises(TypeError, match="has an unknown rank"):
        len(tf.placeholder(tf.float32))


def test_an_array_leaves_its_operators_to_a_tensor_of_numpy_too() -> None:
    total = ARRAY.copy()
    total += tf.constant(1.0)  # as in TensorFlow: the name is the tensor's now
    with tf.Session() as session:
        assert session.run(total).tolist() == [2.0, 2.0]
        assert session.run(ARRAY * tf.constant(3.0)).tolist() == [3.0, 3.0]


# Eager ------------------------------------------------------------------------------------------


@pytest.fixture
def connection(backend: BackendUnderTest) -> Iterator[tf.Connection]:
    with tf.connect(backend.target) as connection:
        yield connection


def test_numpy_and_python_use_the_value_of_an_eager_variable(connection: tf.Connection) -> None:
    scalar, vector = tf.Variable(1.25), tf.Variable([1.0, 2.0])
    assert np.sum(vector) == np.add(ARRAY, vector).sum() - 2 == 3.0
    np.testing.assert_allclose(np.sin(vector), np.sin(np.float32([1, 2])))
    assert (float(scalar), int(scalar), round(float(scalar), 1)) == (1.25, 1, 1.2)
    assert (f"{scalar:.1f}", math.floor(scalar), "%g" % scalar) == ("1.2", 1, "1.25")  # noqa: UP031
    assert [*range(tf.Variable(2))] == [0, 1]
    assert 2.0 in vector
    shards = [tf.Variable([1.0], name="s/part_0"), tf.Variable([2.0], name="s/part_1")]
    sharded = ShardedVariable(shards)
    assert np.sum(sharded) == 3.0
    assert shards[1] in sharded


def test_a_format_for_numbers_says_what_it_got(connection: tf.Connection) -> None:
    vector = tf.Variable([1.0, 2.0])
    with pytest.raises(TypeError, match=r"'.2f' formats a number, and <jflow.Variable .* an array"):
        format(vector, ".2f")
    with pytest.raises(TypeError, match=r"while JAX traces a function, .* jax.debug.print"):
        tf.function(lambda: f"{vector[0]} {vector:.2f}")()


def test_an_eager_queue_is_no_array(connection: tf.Connection) -> None:
    queue = tf.FIFOQueue(1, tf.float32, ())
    for use in (np.asarray, np.sum, float, lambda x: f"{x:.2f}", lambda x: np.array([x])):
        with pytest.raises(TypeError, match=r"is not an array; .*queue.get\(\)"):
            use(queue)


# Copies -----------------------------------------------------------------------------------------

COPIES = [copy.copy, copy.deepcopy, pickle.dumps]


@pytest.mark.parametrize("make_copy", COPIES)
def test_what_stands_for_state_or_a_process_is_not_copied(make_copy: Callable[[Any], Any]) -> None:
    x = variable()
    split = tf.get_variable("w", [4], partitioner=tf.fixed_size_partitioner(2))
    with tf.Session() as session, tf.connect() as connection:
        server = tf.train.Server.create_local_server(start=False)
        cases = [
            (x, r"jflow.Variable\(variable.value\(\)\)"),
            (split, r"jflow.Variable\(variable.value\(\)\)"),
            (tf.Variable(1.0), r"jflow.Variable\(variable.value\(\)\)"),
            (connection, r"jflow.connect\(connection.target\)"),
            (session, r"jflow.Session\(session.target"),
            (x.graph, r"jflow.train.export_meta_graph\(path\)"),
            (tf.FIFOQueue(1, tf.float32), "the same shared_name"),
            (server, r"jflow.connect\(server.target\)"),
            (tf.function(lambda x: x), "apply jflow.function"),
        ]
        for value, words in cases:
            with pytest.raises(TypeError, match=f"cannot be copied or pickled: .*{words}"):
                make_copy(value)


def test_a_tensor_is_its_own_copy_and_is_not_pickled() -> None:
    x = tensor()
    assert copy.copy(x) is copy.deepcopy(x) is x
    assert copy.deepcopy({"x": x})["x"] is x
    assert copy.copy(x.op) is copy.deepcopy(x.op) is x.op
    for value in (x, x.op):
        with pytest.raises(TypeError, match=r"session.run, or .*export_meta_graph"):
            pickle.dumps(value)


def test_options_are_copied() -> None:
    for value in (tf.ConfigProto(), tf.RunOptions(), tf.train.ClusterSpec({"a": ["b:1"]})):
        assert copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value


def test_a_remote_value_is_fetched_first() -> None:
    tree = jax.tree.structure(0)
    value = RemoteValue(1, object(), "f", tree, (), None)  # type: ignore[arg-type]
    for use in (np.asarray, float, lambda x: tf.constant(1.0) + x):
        with pytest.raises(
            TypeError, match=r"the result of a function that a worker runs; fetch\("
        ):
            use(value)
    with pytest.raises(TypeError, match=r"fetch\(\) it, and copy or send the result"):
        pickle.dumps(value)


# Arguments --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tf.LocalCluster(n_workers=2), "'n_workers'; did you mean 'workers'?"),
        (lambda: tf.ConfigProto(allow_soft_placment=True), "did you mean 'allow_soft_placement'?"),
        (lambda: tf.FIFOQueue(1, tf.float32, shape=()), "did you mean 'shapes'?"),
        (lambda: tf.Variable(1.0, nam="x"), "did you mean 'name'?"),
        (lambda: tf.variable_scope("a", resuse=True), "did you mean 'reuse'?"),
        (lambda: tf.data.Dataset.range(3).batch(2, drop_reminder=1), "mean 'drop_remainder'?"),
        (lambda: tf.numpy.sum(tensor(), axs=0), "did you mean 'axis'?"),
        (lambda: tf.train.AdamOptimizer(lr=0.1), "'lr'; it takes learning_rate, beta1"),
        (lambda: tf.Session("", None, None, 1), "it takes target, graph, config"),
        (tf.train.Server, "it takes server_or_cluster_def, job_name"),
    ],
)
def test_a_call_with_other_arguments_says_which_there_are(
    call: Callable[[], Any], words: str
) -> None:
    with pytest.raises(TypeError) as raised:
        call()
    assert words in str(raised.value)


def test_an_error_inside_of_a_function_of_the_user_is_not_changed() -> None:
    def update(old: Any) -> Any:
        return update(old, nam=1)  # type: ignore[call-arg]

    with pytest.raises(TypeError) as raised:
        variable().update(update)
    assert "did you mean" not in str(raised.value)
    assert "it takes" not in str(raised.value)


# Names ------------------------------------------------------------------------------------------


def test_a_name_that_is_nearly_one_says_which() -> None:
    x = tensor()
    loss = tf.identity(tf.numpy.sum(x), name="loss")
    with tf.variable_scope("layer"):
        tf.get_variable("weights", [2])
    graph = loss.graph
    with tf.Session() as session:
        cases: list[tuple[Callable[[], Any], str]] = [
            (lambda: session.run("los:0"), "did you mean 'loss:0'?"),
            (lambda: session.run("los"), "did you mean 'loss'?"),
            (lambda: session.run([loss, "LOSS:0"]), "did you mean 'loss:0'?"),
            (lambda: session.run("weights:0"), "did you mean 'layer/weights:0'?"),
            (lambda: session.run(loss, {"x": [1, 2]}), "got 'x'; did you mean 'x:0'?"),
            (lambda: graph.get_tensor_by_name("los:0"), "did you mean 'loss:0'?"),
            (lambda: graph.get_tensor_by_name("loss"), "did you mean 'loss:0'?"),
            (lambda: graph.get_operation_by_name("loss:0"), "did you mean 'loss'?"),
        ]
        for call, words in cases:
            with pytest.raises((KeyError, TypeError, ValueError)) as raised:
                call()
            assert words in str(raised.value)
    with tf.variable_scope("layer", reuse=True), pytest.raises(ValueError, match="layer/weights'"):
        tf.get_variable("weight", [2])


def test_an_unlike_name_gets_no_advice() -> None:
    tensor()
    with pytest.raises(KeyError) as raised:
        tf.get_default_graph().get_tensor_by_name("something_else:0")
    assert "did you mean" not in str(raised.value)


def test_json_has_no_tensors_which_python_says() -> None:
    with pytest.raises(TypeError, match="Tensor is not JSON serializable"):
        json.dumps({"loss": tensor()})
