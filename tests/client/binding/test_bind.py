"""`jflow.bind`: a model's arrays as named variables, and the model made of them."""

from __future__ import annotations

from contextlib import ExitStack

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

import jflow as tf
from jflow import errors
from tests.clusters import in_process, local, start_servers

X = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
Y = X.sum(1, keepdims=True)


@pytest.fixture(params=[local, in_process], ids=["local", "in_process"])
def target(request):
    """Where models are: in this process, or on a server."""
    with request.param() as backend:
        yield backend.target


@pytest.fixture
def connection(target):
    with tf.connect(target) as connection:
        yield connection


def params():
    return {"dense": {"w": np.ones((4, 1), np.float32), "b": np.zeros(1, np.float32)}, "scale": 2}


class Network(nnx.Module):
    """A network with what is trained, what is not, and what is random."""

    def __init__(self, seed: int) -> None:
        rngs = nnx.Rngs(seed)
        self.hidden = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.out = nnx.List([nnx.Linear(8, 1, rngs=rngs)])
        self.shared = self.hidden

    def __call__(self, x):
        return self.out[0](self.dropout(nnx.relu(self.norm(self.shared(x)))))


def predicted(tree, x):
    return tree["scale"] * (x @ tree["dense"]["w"] + tree["dense"]["b"])


def loss_of(tree, x, y):
    return jnp.mean((predicted(tree, x) - y) ** 2)


# What there is ------------------------------------------------------------------------------------


def test_each_array_is_a_variable_with_its_path_as_name(connection):
    state = tf.bind(params(), "model")
    assert [*state.variables] == ["dense/b", "dense/w"]
    assert [v.name for v in state.variables.values()] == ["model/dense/b:0", "model/dense/w:0"]
    assert repr(state) == "<jflow.BoundState 'model' of 2 variables>"
    value = state.value()
    assert value["scale"] == 2, "numbers of Python are a part of the structure"
    np.testing.assert_array_equal(value["dense"]["w"], np.ones((4, 1)))
    assert "model" in state._repr_html_()


def test_a_program_finds_what_another_one_has_made(target):
    with tf.connect(target) as connection:
        first = tf.bind(params(), "model")
        first.assign_add({"dense": {"w": np.ones((4, 1), np.float32), "b": None}, "scale": None})
        if target:
            connection.close()
            with tf.connect(target):
                again = tf.bind(params(), "model")
                np.testing.assert_array_equal(again.value()["dense"]["w"], 2 * np.ones((4, 1)))
        else:
            again = tf.bind(params(), "model")
            np.testing.assert_array_equal(again.value()["dense"]["w"], 2 * np.ones((4, 1)))


def test_make_anew_gives_the_variables_the_values_of_the_model(connection):
    tf.bind(params(), "model")
    other = jax.tree.map(lambda x: 3 * x, params())
    np.testing.assert_array_equal(tf.bind(other, "model").value()["dense"]["w"], np.ones((4, 1)))
    state = tf.bind(other, "model", make_anew=True)
    np.testing.assert_array_equal(state.value()["dense"]["w"], 3 * np.ones((4, 1)))


def test_containers_keep_models_of_one_name_apart(connection):
    tf.bind(params(), "model")
    with tf.container("other"):
        state = tf.bind(jax.tree.map(lambda x: 3 * x, params()), "model")
    np.testing.assert_array_equal(state.value()["dense"]["w"], 3 * np.ones((4, 1)))
    assert state.variables["dense/w"].container == "other"


def test_paths_become_names_that_variables_may_have(connection):
    state = tf.bind({"a b": np.ones(2), "c": [np.ones(1), np.ones(1)]}, "odd")
    assert [v.name for v in state.variables.values()] == ["odd/a_b:0", "odd/c/0:0", "odd/c/1:0"]
    with pytest.raises(ValueError, match="has the same name as 'a b': 'a_b'"):
        tf.bind({"a b": np.ones(2), "a_b": np.ones(2)}, "same")
    with pytest.raises(
        ValueError, match=r"'bound/head' has the name of the records of jflow\.bind"
    ):
        tf.bind({"bound": {"head": np.ones(2)}}, "record")
    alone = tf.bind(np.ones(3, np.float32), "alone")
    np.testing.assert_array_equal(alone.value(), np.ones(3))
    assert alone.variables["value"].name == "alone/value:0"


def test_name_scopes_are_a_part_of_the_prefix(connection):
    with tf.name_scope("tower"):
        state = tf.bind(params(), "model")
        assert state.variables["dense/b"].name == "tower/model/dense/b:0"
    outside = tf.bind(jax.tree.map(lambda x: 3 * x, params()), "model")
    np.testing.assert_array_equal(outside.value()["dense"]["w"], 3 * np.ones((4, 1)))


def test_any_dtype_of_variables_is_bound(connection):
    tree = {
        "key": jax.random.key(3),
        "half": np.ones(2, jnp.bfloat16),
        "whole": np.arange(3, dtype=np.int8),
        "flag": np.array(True),
        "empty": np.zeros((0, 3), np.float32),
    }
    value = tf.bind(tree, "types").value()
    for name, array in tree.items():
        assert value[name].dtype == array.dtype
        assert value[name].shape == array.shape
    assert (jax.random.key_data(value["key"]) == jax.random.key_data(tree["key"])).all()


# Functions ----------------------------------------------------------------------------------------


def test_a_function_trains_it_as_jax_does(connection):
    state = tf.bind(params(), "model")

    @tf.function
    def step(state, x, y):
        value, slopes = tf.value_and_grad(loss_of)(state, x, y)
        state.assign_sub(jax.tree.map(lambda slope: 0.1 * slope, slopes))
        return value

    expected = params()["dense"]
    for _ in range(5):
        found = step(state, X, Y)
        value, slopes = jax.value_and_grad(lambda p: loss_of({"dense": p, "scale": 2}, X, Y))(
            expected
        )
        expected = jax.tree.map(lambda p, slope: p - 0.1 * slope, expected, slopes)
        np.testing.assert_allclose(found, value, rtol=1e-5)
    for name, array in expected.items():
        np.testing.assert_allclose(state.value()["dense"][name], array, rtol=1e-5)


def test_functions_use_it_from_outside_and_gradients_need_no_function(connection):
    state = tf.bind(params(), "model")

    @tf.function
    def outputs(x):
        return predicted(state.value(), x)

    np.testing.assert_allclose(outputs(X), predicted(params(), X), rtol=1e-6)
    slopes = tf.grad(loss_of)(state, X, Y)
    wanted = jax.grad(lambda p: loss_of({"dense": p, "scale": 2}, X, Y))(params()["dense"])
    np.testing.assert_allclose(slopes["dense"]["w"], wanted["w"], rtol=1e-5)
    assert slopes["scale"] is None


def test_an_optimizer_of_jflow_takes_its_pairs(connection):
    state = tf.bind(params(), "model")
    optimizer = tf.train.Optimizer(optax.adam(0.1))

    @tf.function
    def step(x, y):
        value, slopes = tf.value_and_grad(loss_of)(state, x, y)
        optimizer.apply_gradients(state.pairs(slopes))
        return value

    losses = [float(step(X, Y)) for _ in range(20)]
    assert losses[-1] < 0.2 * losses[0]
    assert {*state.trainable_variables} == {*state.variables.values()}


def test_the_state_of_an_optimizer_is_bound_too(connection):
    transformation = optax.adam(0.1)
    state = tf.bind(params(), "model")
    moments = tf.bind(transformation.init(state.trainable()), "adam")
    assert [*moments.variables][:3] == ["0/count", "0/mu/dense/b", "0/mu/dense/w"]

    @tf.function
    def step(x, y):
        value, slopes = tf.value_and_grad(loss_of)(state, x, y)
        updates, new = transformation.update(slopes, moments.value(), state.trainable())
        state.assign_add(updates)
        moments.assign(new)
        return value

    losses = [float(step(X, Y)) for _ in range(20)]
    assert losses[-1] < 0.2 * losses[0]
    assert moments.value()[0].count == 20


def test_a_module_of_nnx_trains_with_its_statistics_and_random_state(connection):
    transformation = optax.sgd(0.05)
    state = tf.bind(Network(0), "network")

    @tf.function
    def step(x, y):
        def loss(model):
            return jnp.mean((model(x) - y) ** 2), model

        (value, model), slopes = tf.value_and_grad(loss, has_aux=True)(state)
        updates, _ = transformation.update(slopes, transformation.init(slopes))
        state.assign(model)
        state.assign_add(updates)
        return value

    expected, losses = Network(0), []
    for _ in range(5):
        value, slopes = nnx.value_and_grad(lambda model: jnp.mean((model(X) - Y) ** 2))(expected)
        old = nnx.state(expected, nnx.Param)
        nnx.update(expected, jax.tree.map(lambda p, slope: p - 0.05 * slope, old, slopes))
        losses.append(float(value))
    np.testing.assert_allclose([float(step(X, Y)) for _ in range(5)], losses, rtol=1e-4)
    model = state.value()
    np.testing.assert_allclose(model.norm.mean[...], expected.norm.mean[...], rtol=1e-4)
    assert model.dropout.rngs.count[...] == expected.dropout.rngs.count[...] == 5
    assert model.shared is model.hidden
    assert [*state.variables] == sorted(state.variables)
    assert sum("hidden" in path or "shared" in path for path in state.variables) == 2


def test_states_may_be_anywhere_in_the_arguments_of_gradients(connection):
    first, second = tf.bind(params(), "first"), tf.bind(params(), "second")

    def loss(models, scale, x):
        return scale * sum(jnp.sum(predicted(model, x)) for model in models.values())

    slopes = tf.grad(loss)({"a": first, "b": second}, 2.0, X)
    np.testing.assert_allclose(slopes["a"]["dense"]["b"], [2 * 2 * len(X)])
    np.testing.assert_allclose(slopes["b"]["dense"]["b"], [2 * 2 * len(X)])
    of_both = tf.grad(lambda a, b, x: loss({"a": a, "b": b}, 1.0, x), argnums=(0, 1))
    a, b = of_both(first, second, X)
    np.testing.assert_allclose(a["dense"]["b"], b["dense"]["b"])


def test_arrays_of_a_module_beside_its_variables_are_bound(connection):
    class Scaled(nnx.Module):
        def __init__(self):
            self.w = nnx.Param(jnp.ones(2))
            self.scale = nnx.data(jnp.full(2, 3.0))

    state = tf.bind(Scaled(), "scaled")
    assert [*state.variables] == ["scale", "w"]
    assert len(state.trainable_variables) == 1
    np.testing.assert_array_equal(state.value().scale, [3, 3])
    state.assign(Scaled())


def test_a_container_of_modules_is_refused(connection):
    modules = {"a": nnx.Linear(2, 2, rngs=nnx.Rngs(0))}
    with pytest.raises(TypeError, match="got one at 'a'; bind each module by itself"):
        tf.bind(modules, "container")


# Where it is --------------------------------------------------------------------------------------


def devices_of(state):
    return {path: variable.device for path, variable in state.variables.items()}


def test_devices_are_chosen_by_path_and_by_function():
    ps = [f"/job:ps/task:{i}/device:CPU:0" for i in range(2)]
    with in_process({"ps": 2, "worker": 1}) as backend, tf.connect(backend.target):
        by_path = tf.bind(params(), "one", {"*/w": "/job:ps/task:1", "dense/*": "/job:ps/task:0"})
        assert devices_of(by_path) == {"dense/b": ps[0], "dense/w": ps[1]}
        larger = tf.bind(params(), "two", lambda path, x: ps[x.size > 1])
        assert devices_of(larger) == {"dense/b": ps[0], "dense/w": ps[1]}
        with tf.device("/job:worker"):
            partly = tf.bind(params(), "three", {"*/w": "/job:ps/task:1"})
        worker = "/job:worker/task:0/device:CPU:0"
        assert devices_of(partly) == {"dense/b": worker, "dense/w": ps[1]}
        with pytest.raises(
            ValueError, match=r"no array has a path like 'conv/\*'; there are dense/"
        ):
            tf.bind(params(), "four", {"conv/*": "/job:ps"})


def test_a_strategy_distributes_and_divides_it():
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 2, "worker": 1})
        partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
        strategy = tf.distribute.ParameterServerStrategy(
            servers[0].cluster_spec, variable_partitioner=partitioner
        )
        with strategy.scope():
            # A rule decides before the strategy, which takes what it leaves open.
            tree = {"a": np.zeros((4, 2)), "b": np.zeros((4, 2)), "c": np.zeros((4, 2))}
            ruled = tf.bind(tree, "ruled", {"[ab]": "/job:ps/task:1"})
            assert {ruled.variables[name].device for name in "ab"} == {
                "/job:ps/task:1/device:CPU:0"
            }
            assert len(ruled.variables["c"].variables) == 2
            state = tf.bind({"table": np.arange(8.0).reshape(4, 2), "rate": np.float32(1)}, "m")
            again = tf.bind({"table": np.zeros((4, 2)), "rate": np.float32(0)}, "m")
        table = state.variables["table"]
        tasks = [part.device.split("/device")[0] for part in table.variables]
        assert len({*tasks}) == 2
        np.testing.assert_array_equal(again.value()["table"], np.arange(8.0).reshape(4, 2))

        @tf.function
        def add(state):
            state.assign_add({"table": jnp.ones((4, 2)), "rate": None})

        with strategy.scope():
            add(state)
        np.testing.assert_array_equal(again.value()["table"], np.arange(8.0).reshape(4, 2) + 1)
        strategy.close()


def test_weights_are_divided_over_a_mesh_by_rules():
    with tf.connect(), tf.device(mesh={"m": 4}):
        tree = {"up": {"w": np.ones((4, 8), np.float32)}, "b": np.ones(8, np.float32)}
        state = tf.bind(tree, "sharded", shardings={"*w": P(None, "m")})
        assert state.variables["up/w"].sharding == P(None, "m")

        @tf.function
        def double(state):
            with tf.device(mesh={"m": 4}):
                state.assign(jax.tree.map(lambda x: 2 * x, state.value()))

        double(state)
        np.testing.assert_array_equal(state.value()["up"]["w"], 2 * tree["up"]["w"])
        assert state.variables["up/w"].sharding == P(None, "m")


def test_it_is_saved_by_path(target, tmp_path):
    path = str(tmp_path / "model")
    with tf.connect(target):
        state = tf.bind(params(), "model")
        tf.checkpoint.save(path, {"first": state})
        reader = tf.train.load_checkpoint(path)
        assert {*reader.get_variable_to_shape_map()} == {"first/dense/b", "first/dense/w"}
        state.assign_add({"dense": {"w": np.ones((4, 1), np.float32), "b": None}, "scale": None})
        tf.checkpoint.restore(path, {"first": state})
        np.testing.assert_array_equal(state.value()["dense"]["w"], np.ones((4, 1)))


# What is refused ----------------------------------------------------------------------------------


def test_another_model_under_the_prefix_is_an_error_with_the_variable(connection):
    tf.bind(params(), "model")
    wide = params()
    wide["dense"]["w"] = np.ones((4, 3), np.float32)
    message = r"'model/dense/w' is float32\[4, 1\] there, and float32\[4, 3\] here"
    with pytest.raises(errors.InvalidArgumentError, match=message):
        tf.bind(wide, "model")
    more = params() | {"bias": np.ones(2, np.float32)}
    with pytest.raises(errors.InvalidArgumentError, match="it has no variable 'model/bias'"):
        tf.bind(more, "model")
    fewer = {"dense": {"w": np.ones((4, 1), np.float32)}}
    with pytest.raises(errors.InvalidArgumentError, match="it has a variable 'model/dense/b', and"):
        tf.bind(fewer, "model")


def test_a_model_is_found_where_it_is_whatever_is_requested():
    with in_process({"ps": 2, "worker": 1}) as backend, tf.connect(backend.target):
        tf.bind(params(), "model", "/job:ps/task:1")
        again = tf.bind(jax.tree.map(lambda x: 3 * x, params()), "model", "/job:worker")
        assert {*devices_of(again).values()} == {"/job:ps/task:1/device:CPU:0"}
        np.testing.assert_array_equal(again.value()["dense"]["w"], np.ones((4, 1)))


def test_what_another_structure_gives_is_refused(connection):
    state = tf.bind(params(), "model")
    with pytest.raises(ValueError, match="'model' of 2 variables> does not take this model"):
        state.assign({"dense": np.ones(3)})
    with pytest.raises(ValueError, match=r"shape"):
        state.assign({"dense": {"w": np.ones((5, 1), np.float32), "b": None}, "scale": None})
    network = tf.bind(Network(0), "network")
    with pytest.raises(ValueError, match="expected a module or state of NNX, got dict"):
        network.assign({})
    with pytest.raises(ValueError, match="'bias' is none of its variables, such as"):
        network.assign(nnx.Linear(2, 2, rngs=nnx.Rngs(0)))
    with pytest.raises(TypeError, match="is not iterable"):
        list(state)


def test_what_is_no_array_cannot_change(connection):
    state = tf.bind({"w": np.ones(2, np.float32), "step": 0, "rate": 0.5}, "numbers")
    state.assign({"w": np.zeros(2, np.float32), "step": 0, "rate": 0.5})
    with pytest.raises(ValueError, match=r"0 is no variable but a part .* as jnp\.asarray\(0\)"):
        state.assign({"w": np.zeros(2, np.float32), "step": 1, "rate": 0.5})
    with pytest.raises(ValueError, match="is no variable but a part"):
        state.assign({"w": np.zeros(2, np.float32), "step": jnp.int32(0), "rate": 0.5})


def test_a_state_whose_connection_is_closed_says_so(target):
    with tf.connect(target):
        state = tf.bind(params(), "closed")
    with pytest.raises(RuntimeError, match=r"call jflow\.connect and bind the model again"):
        state.value()
    if target:
        with tf.connect(target):
            np.testing.assert_array_equal(state.value()["dense"]["w"], np.ones((4, 1)))


def test_it_needs_a_connection_and_arrays(connection):
    with pytest.raises(TypeError, match="expected a model or pytree with arrays, got"):
        tf.bind({"rate": 0.1}, "numbers")
    with pytest.raises(TypeError, match="cannot hold strings"):
        tf.bind({"name": np.array(["a"])}, "texts")

    @tf.function
    def inside(x):
        tf.bind({"x": x}, "inside")

    with pytest.raises(RuntimeError, match="outside of functions and graphs"):
        inside(X)


def test_without_a_connection_it_says_what_is_needed():
    with pytest.raises(RuntimeError, match=r"call it inside `with jflow\.connect"):
        tf.bind(params(), "model")
