"""Variables on meshes: how they are sharded, and that they stay where they are."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jflow as tf
from jflow import errors
from jflow.client.functions.current import current
from jflow.plan.xla.hardware import mesh_on
from jflow.plan.xla.shardings import (
    nearest_sharding,
    sharding_on,
    spec_of_text,
    text_of_sharding,
    text_of_spec,
)
from tests.mesh.clusters import cluster as cluster

SQUARE = {"data": 2, "model": 2}
W = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
X = np.ones((4, 8), np.float32)


ROWS = P("model", None)


def made(name="w", spec=ROWS, value=W, where="", **options):
    with tf.device(where, mesh=SQUARE):
        return tf.Variable(value, name=name, sharding=spec, **options)


def array_of(variable) -> jax.Array:
    """The array of a variable of this process."""
    return current().peek(variable.operations.ref)


def addresses(variable) -> list[int]:
    return [shard.data.unsafe_buffer_pointer() for shard in array_of(variable).addressable_shards]


@pytest.fixture
def local():
    with tf.connect() as connection:
        yield connection


# Text -------------------------------------------------------------------------------------------

MESH = mesh_on((("data", 2), ("model", 2)), jax.local_devices()[:4])


@pytest.mark.parametrize(
    ("spec", "shape", "text"),
    [
        (P("data", None), (4, 3), "data,*"),
        (P(("data", "model")), (4, 3), "data+model,*"),
        (P(), (4, 3), "*,*"),
        (P(None, "model"), (4, 6), "*,model"),
        (P(), (), ""),
    ],
)
def test_a_sharding_as_text_means_the_same(spec, shape, text):
    assert text_of_spec(spec, shape, (("data", 2), ("model", 2))) == text
    sharding = sharding_on(MESH, text)
    assert sharding.is_equivalent_to(NamedSharding(MESH, spec), len(shape))
    assert text_of_sharding(sharding, len(shape)) == text
    assert (spec_of_text(text) is None) == (not text)


def test_a_sharding_on_another_mesh_keeps_what_that_allows():
    row = mesh_on((("model", 4),), jax.local_devices()[:4])
    assert nearest_sharding(row, "data,model", (8, 8)).spec == P(None, "model")
    assert nearest_sharding(row, "data,model", (8, 6)).spec == P(None, None)
    assert nearest_sharding(MESH, "data+model,*", (8, 6)).spec == P(("data", "model"), None)


# Where they are ---------------------------------------------------------------------------------


def test_a_variable_stays_sharded_and_is_updated_in_place(local):
    w = made()
    assert array_of(w).sharding.spec == P("model", None)
    assert {shard.data.shape for shard in array_of(w).addressable_shards} == {(4, 8)}

    @tf.function
    def step(x):
        with tf.device(mesh=SQUARE):
            w.assign_sub(0.1 * x.T @ x)
            return jnp.sum(w.value())

    before = addresses(w)
    found = [float(step(X)) for _ in range(3)]
    assert addresses(w) == before
    wanted = W - 0.3 * X.T @ X
    np.testing.assert_allclose(w.numpy(), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[-1], wanted.sum(), rtol=1e-5)
    assert addresses(w) == before, "reading it has made the next update copy"
    step(X)
    assert addresses(w) == before


def test_an_assignment_keeps_the_sharding_whatever_the_value_has(local):
    w = made()
    w.assign(2 * W)
    assert array_of(w).sharding.spec == P("model", None)

    @tf.function
    def other(x):
        with tf.device(mesh=SQUARE):
            w.assign(jax.lax.with_sharding_constraint(x * 3, P(None, "data")))

    other(W)
    assert array_of(w).sharding.spec == P("model", None)
    np.testing.assert_array_equal(w.numpy(), 3 * W)


def test_an_initializer_decides_where_nothing_is_declared(local):
    def initial():
        return jax.lax.with_sharding_constraint(jnp.ones((4, 6)), P(None, "model"))

    with tf.device(mesh=SQUARE):
        w = tf.Variable(initial, name="initialized")
        whole = tf.Variable(X, name="whole")
    assert array_of(w).sharding.spec == w.sharding == P(None, "model")
    assert array_of(whole).is_fully_replicated


def test_a_card_says_how_a_variable_is_sharded(local):
    text = made()._repr_html_()
    assert "sharding" in text
    assert "model" in text


def test_graph_code_initializes_a_sharded_variable():
    w = made("graph")
    with tf.device(mesh=SQUARE):
        total = tf.numpy.sum(w.value())
        update = w.assign_add(W)
    assert w.sharding == P("model", None)
    with tf.Session() as session:
        session.run(w.initializer)
        session.run(update)
        assert session.run(total) == pytest.approx(2 * W.sum())
        np.testing.assert_array_equal(session.run(w[2:3]), 2 * W[2:3])


def test_a_variable_of_changing_sizes_is_whole_on_each_device():
    with tf.device(mesh=SQUARE):
        v = tf.Variable(X, validate_shape=False, name="varying")
        changed = v.assign(tf.numpy.concatenate([v.value(), v.value()], 1))
    with tf.Session() as session:
        session.run(v.initializer)
        session.run(changed)
        assert session.run(v).shape == (4, 16)
        session.run(changed)
        assert session.run(v).shape == (4, 32)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float64", "complex64"])
def test_values_of_every_kind_are_gathered(local, dtype):
    with jax.enable_x64(dtype == "float64"):
        value = jnp.arange(16).reshape(4, 4).astype(dtype)
        v = made(f"of_{dtype}", P("data", "model"), value)
        np.testing.assert_array_equal(v.numpy(), value)
        assert v.numpy().dtype == value.dtype


# Slots ------------------------------------------------------------------------------------------


def trained(optimizer, where=""):
    w, b = made(where=where), made("b", P("data"), np.zeros(8, np.float32), where)

    @tf.function
    def step(x):
        with tf.device(where, mesh=SQUARE):

            def loss(w, b):
                return jnp.mean((x @ w + b) ** 2)

            value, grads = jax.value_and_grad(loss, argnums=(0, 1))(w.value(), b.value())
            optimizer.apply_gradients(zip(grads, (w, b), strict=True))
            return value

    return w, b, [float(step(X)) for _ in range(4)]


def wanted_losses() -> list[float]:
    tx = optax.adam(0.1)
    params = (jnp.asarray(W), jnp.zeros(8))
    state, found = tx.init(params), []
    for _ in range(4):
        value, grads = jax.value_and_grad(lambda p: jnp.mean((X @ p[0] + p[1]) ** 2))(params)
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        found.append(float(value))
    return found


@pytest.mark.parametrize("place", ["here", "on a task"])
def test_the_slots_of_an_optimizer_are_sharded_as_their_variables(place, request):
    target = "" if place == "here" else request.getfixturevalue("cluster").target()
    where = "" if place == "here" else "/job:worker/task:1"
    with tf.connect(target):
        optimizer = tf.train.AdamOptimizer(0.1)
        _, _, losses = trained(optimizer, where)
        specs = {v.name: v.sharding for v in optimizer.variables()}
        tf.Session.reset(target) if target else None
    np.testing.assert_allclose(losses, wanted_losses(), rtol=1e-4)
    assert specs["w/Adam/mu:0"] == specs["w/Adam/nu:0"] == P("model", None)
    assert specs["b/Adam/mu:0"] == specs["b/Adam/nu:0"] == P("data")
    assert specs["w/Adam/count:0"] is None


def test_slots_in_graph_code_are_sharded_as_their_variables():
    w = made("graph")
    with tf.device(mesh=SQUARE):
        loss = tf.numpy.sum(tf.numpy.square(w.value()))
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    train = optimizer.minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(w), W - 0.2 * W, rtol=1e-5)
    assert [slot.sharding for slot in optimizer.variables()] == [P("model", None)]


# Sharing ----------------------------------------------------------------------------------------


def test_other_programs_see_the_sharding_and_need_no_devices_of_their_own(cluster):
    where = "/job:worker/task:1"
    with tf.connect(cluster.target()):
        made("shared", where=where).assign_add(W)
    with tf.connect(cluster.target("worker", 1)):
        attached = made("shared", None, where=where)
        assert attached.sharding == P("model", None)
        np.testing.assert_array_equal(attached.numpy(), 2 * W)
        with tf.device(where, mesh=SQUARE), tf.Graph().as_default() as graph:
            v = tf.Variable(W, name="shared")
            row = v[3]
        with tf.Session(cluster.target(), graph=graph) as session:
            np.testing.assert_array_equal(session.run(row), 2 * W[3])
    tf.Session.reset(cluster.target())


def test_a_slice_is_taken_on_the_mesh_and_only_it_is_sent(cluster):
    value = np.arange(64_000, dtype=np.float32).reshape(64, 1000)
    with tf.connect(cluster.target()):
        with tf.device("/job:worker/task:1", mesh={"m": 4}):
            v = tf.Variable(value, sharding=P("m"))

        @tf.function
        def row(i):
            return v.value()[3], v.value()[i]

        rows = np.array([1, 5])
        for found, wanted in zip(row(rows), (value[3], value[rows]), strict=True):
            np.testing.assert_array_equal(found, wanted)
        places = {op.type: str(device) for op, device in row.placement(rows).items()}
    for name in ("slice", "gather"):
        assert places[name] == "/job:worker/task:1/device:MESH:0[m=4]"


def test_another_sharding_of_a_variable_that_exists_is_refused_with_both(local):
    made()
    with pytest.raises(errors.InvalidArgumentError, match=r"sharded 'model,\*'.*'data,model'"):
        made(spec=P("data", "model"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (P("rows"), r"names the axis 'rows', but the mesh has \['data', 'model'\]"),
        (P("data", "data"), "more than once"),
        (P(None, None, "data"), r"at least 3 dimensions, got the shape \(8, 8\)"),
        (NamedSharding(AbstractMesh((4,), ("rows",)), P("rows")), "axes {'rows': 4}"),
    ],
)
def test_a_sharding_that_does_not_fit_is_refused_where_it_is_written(local, spec, message):
    with pytest.raises(ValueError, match=f"variable 'w'.*{message}"):
        made(spec=spec)


def test_a_size_that_the_axes_do_not_divide_is_refused_where_it_is_written(local):
    with pytest.raises(ValueError, match=r"size 6 over data\+model, 4 devices"):
        made(spec=P(("data", "model")), value=np.ones((6, 2), np.float32))


def test_a_sharding_without_a_mesh_is_refused_with_what_to_do(local):
    with pytest.raises(ValueError, match=r"is not on a mesh; make it in a block"):
        tf.Variable(W, name="w", sharding=P("model"))
    with pytest.raises(TypeError, match="PartitionSpec as its sharding, got str"):
        made(spec="model")


# Moving and saving ------------------------------------------------------------------------------


def test_a_sharded_variable_is_saved_and_restored(local, tmp_path):
    w = made()
    tf.checkpoint.save(str(tmp_path / "saved"), {"w": w})
    before = addresses(w)
    w.assign_add(W)
    tf.checkpoint.restore(str(tmp_path / "saved"), {"w": w})
    np.testing.assert_array_equal(w.numpy(), W)
    assert array_of(w).sharding.spec == P("model", None)
    assert len(before) == 4
