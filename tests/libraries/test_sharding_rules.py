"""Sharding rules of Flax, Optax, Equinox and Orbax do on meshes of jflow what they do in JAX.

Each program uses the sharding API of its library as that is documented: inside a device block on a
mesh of this process, and on a task of a cluster. The values are those of `jax.jit` on one device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jflow as tf
from jflow.client.functions.current import current
from jflow.state.checkpoint_files import open_checkpoint, write_orbax

AXES = ("data", "model")
SQUARE = {"data": 2, "model": 2}
HERE = Mesh(np.array(jax.local_devices()[:4]).reshape(2, 2), AXES, (AxisType.Auto,) * 2)
"""The mesh that programs name; its shape and axes count, its devices do not."""
ONE = Mesh(np.array(jax.local_devices()[:1]).reshape(1, 1), AXES, (AxisType.Auto,) * 2)
"""The mesh of what is compared with: a device without others."""

X = np.cos(np.arange(32, dtype=np.float32)).reshape(4, 8)
TEXTS = np.cos(np.arange(128, dtype=np.float32)).reshape(4, 4, 8)
GRID = np.cos(np.arange(512, dtype=np.float32)).reshape(4, 4, 4, 8)
NUMBERS = np.arange(16).reshape(4, 4)
ZERO = np.zeros((4, 4), np.float32)


class Location(NamedTuple):
    """Where a mesh is: in this process, or on a task."""

    task: str

    def block(self) -> AbstractContextManager[Any]:
        return tf.device(self.task, mesh=SQUARE)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """The result of a function of arrays that runs on the mesh."""

        @tf.function
        def on_mesh(*args: Any) -> Any:
            with self.block():
                return function(*args)

        return on_mesh(*args)

    def variables(self, values: Any, specs: Any) -> Any:
        """A variable on the mesh for each value."""
        with self.block():
            return jax.tree.map(lambda x, spec: tf.Variable(x, sharding=spec), values, specs)

    def check(self, variables: Any, specs: Any) -> None:
        """Checks how variables are sharded, and that not all of them are whole on each device."""
        wanted = jax.tree.leaves(specs)
        for variable, spec in zip(jax.tree.leaves(variables), wanted, strict=True):
            n_dims = len(variable.shape)
            full = padded(spec, n_dims)
            assert variable.sharding == (full if n_dims else None)
            if not self.task:
                found: Any = current().peek(variable.operations.ref)
                assert found.sharding.is_equivalent_to(on(HERE, *full), n_dims)
        assert any(any(padded(spec, 0)) for spec in wanted), "no variable is divided"


def on(mesh: Any, *spec: Any) -> NamedSharding:
    return NamedSharding(mesh, P(*spec))


def padded(sharding: Any, n_dims: int) -> P:
    spec = getattr(sharding, "spec", sharding)
    return P(*spec, *[None] * (n_dims - len(spec)))


def values(variables: Any) -> Any:
    return jax.tree.map(lambda variable: variable.value(), variables)


def assert_close(found: Any, wanted: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module", params=["this process", "a task"])
def place(request: pytest.FixtureRequest) -> Iterator[Location]:
    with ExitStack() as scopes:
        target, task = "", ""
        if request.param == "a task":
            cluster = tf.LocalCluster(ps=0, workers=1, resources=tf.TaskResources(cpu_devices=4))
            target, task = scopes.enter_context(cluster).target(), "/job:worker/task:0"
        scopes.enter_context(tf.connect(target))
        yield Location(task)


# Parameters of Flax -----------------------------------------------------------------------------


class Model(NamedTuple):
    """Makes parameters on a mesh, gets their shardings from the library, and computes from them."""

    init: Callable[[], Any]
    specs: Callable[[], Any]
    apply: Callable[[Any, Any], Any]
    x: Any


NORMAL = nn.initializers.normal(0.3)
RULES = (("batch", "data"), ("embed", None), ("hidden", "model"))


def part(*names: Any, **options: Any) -> Any:
    """An initializer of NNX with partitioning metadata."""
    return nnx.with_partitioning(NORMAL, names, **options)


def of_nnx(
    make: Callable[..., Any],
    x: Any = X,
    apply: Callable[[Any, Any], Any] = lambda model, x: model(x),
    specs_of: Callable[[Any], Any] = nnx.get_partition_spec,
) -> Model:
    def abstract() -> tuple[Any, Any]:
        return nnx.split(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))

    return Model(
        lambda: nnx.to_pure_dict(nnx.state(make(rngs=nnx.Rngs(0)))),
        lambda: nnx.to_pure_dict(specs_of(abstract()[1])),
        lambda params, x: apply(nnx.merge(abstract()[0], params), x),
        x,
    )


linear = partial(nnx.Linear, 8, 4, kernel_init=part(*AXES))
NEW_AXIS = {nnx.PARTITION_NAME: None}


@nnx.split_rngs(splits=3)
@nnx.vmap(in_axes=0, out_axes=0, transform_metadata=NEW_AXIS)
def stacked(rngs: nnx.Rngs) -> nnx.Linear:
    """Three layers, whose metadata have one more axis."""
    return nnx.Linear(8, 8, kernel_init=part(*AXES), rngs=rngs)


@nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry, transform_metadata=NEW_AXIS)
def scanned(layer: nnx.Linear, x: Any) -> Any:
    return jnp.tanh(layer(x))


def recurrent(rngs: nnx.Rngs) -> nnx.RNN:
    inits = {"kernel_init": part(*AXES), "recurrent_kernel_init": part(None, "model")}
    return nnx.RNN(nnx.LSTMCell(8, 4, rngs=rngs, **inits), rngs=False)


def with_box(box: Any, value: Any) -> Any:
    return box.replace_boxed(value) if isinstance(box, nn.meta.AxisMetadata) else value


def of_linen(module: nn.Module, x: Any = X, is_logical: bool = False) -> Model:
    def init() -> Any:
        return module.init(jax.random.key(0), x)

    def specs() -> Any:
        found = nn.get_partition_spec(jax.eval_shape(init))
        return nn.logical_to_mesh(found, RULES) if is_logical else found

    def apply(params: Any, x: Any) -> Any:
        boxes = jax.eval_shape(init)
        boxed = jax.tree.map(with_box, boxes, params, is_leaf=nn.meta.is_axis_metadata)
        with nn.logical_axis_rules(RULES):
            return module.apply(boxed, x)

    return Model(lambda: nn.meta.unbox(init()), specs, apply, x)


class Mlp(nn.Module):
    """The example of `nn.Partitioned`."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for size, names in ((16, ("data", "model")), (8, ("model", "data"))):
            x = nn.relu(nn.Dense(size, kernel_init=nn.with_partitioning(NORMAL, names))(x))
        return x


class Repeated(nn.Module):
    """Layers in `nn.scan`, whose metadata have one more axis."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        axes: Any = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
        metadata = {nn.meta.PARTITION_NAME: None}
        layers = nn.scan(lambda m, x, _: (m(x), None), **axes, length=2, metadata_params=metadata)
        return layers(Mlp(), x, None)[0]


class Logical(nn.Module):
    """Layers and values whose axes have logical names."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for size, names in ((16, ("embed", "hidden")), (8, ("hidden", "embed"))):
            x = nn.with_logical_constraint(x, ("batch", names[0]))
            x = nn.relu(nn.Dense(size, kernel_init=nn.with_logical_partitioning(NORMAL, names))(x))
        return nn.with_logical_constraint(x, ("batch", "embed"))


OF_HEADS = {"kernel_init": part(None, "model", None), "out_kernel_init": part("model", None, None)}
TABLE: Any = {"embedding_init": nn.with_logical_partitioning(NORMAL, ("hidden", "batch"))}

MODELS: dict[str, Model] = {
    "nnx.Linear": of_nnx(partial(linear, bias_init=part("model"))),
    "nnx.Linear with sharding_rules": of_nnx(
        partial(nnx.Linear, 8, 4, kernel_init=part("embed", "hidden", sharding_rules=RULES))
    ),
    "nnx.get_named_sharding": of_nnx(linear, specs_of=lambda s: nnx.get_named_sharding(s, HERE)),
    "nnx.Conv": of_nnx(partial(nnx.Conv, 8, 4, (3, 3), kernel_init=part(None, None, *AXES)), GRID),
    "nnx.Embed": of_nnx(
        partial(nnx.Embed, 16, 8, embedding_init=part("model", "data")),
        NUMBERS,
        lambda embed, x: embed.attend(embed(x)),
    ),
    "nnx.LayerNorm": of_nnx(partial(nnx.LayerNorm, 8, scale_init=part(AXES))),
    "nnx.MultiHeadAttention": of_nnx(
        partial(nnx.MultiHeadAttention, 2, 8, decode=False, **OF_HEADS), TEXTS
    ),
    "nnx.LSTMCell": of_nnx(recurrent, TEXTS, lambda rnn, x: rnn(x, initial_carry=(ZERO, ZERO))),
    "nnx.vmap and nnx.scan": of_nnx(lambda *, rngs: stacked(rngs), apply=scanned),
    "linen.with_partitioning": of_linen(Mlp()),
    "linen.scan": of_linen(Repeated()),
    "linen.with_logical_partitioning": of_linen(Logical(), is_logical=True),
    "linen.Embed with logical axes": of_linen(nn.Embed(16, 8, **TABLE), NUMBERS, is_logical=True),
}


def sgd(model: Model, params: Any, x: Any) -> tuple[Any, Any]:
    """The loss, and the change of each parameter."""
    loss, grads = jax.value_and_grad(lambda params: jnp.mean(model.apply(params, x) ** 2))(params)
    return loss, jax.tree.map(lambda grad: 0.1 * grad, grads)


@cache
def trained_on_one_device(name: str) -> Any:
    model, losses = MODELS[name], []
    with jax.set_mesh(ONE):
        params, step = jax.jit(model.init)(), jax.jit(partial(sgd, model))
        for _ in range(2):
            loss, change = step(params, model.x)
            params = jax.tree.map(jnp.subtract, params, change)
            losses.append(loss)
        return losses, params


@pytest.mark.parametrize("name", MODELS)
def test_a_flax_model_trains_on_a_mesh_as_on_one_device(name: str, place: Location) -> None:
    model = MODELS[name]
    with place.block():
        specs = model.specs()
    variables = place.variables(place.call(model.init), specs)

    @tf.function
    def step(x: Any) -> Any:
        with place.block():
            loss, change = sgd(model, values(variables), x)
            jax.tree.map(lambda variable, change: variable.assign_sub(change), variables, change)
            return loss

    losses = [step(model.x) for _ in range(2)]
    assert_close((losses, values(variables)), trained_on_one_device(name))
    place.check(variables, specs)


def test_a_flax_model_is_made_in_a_block_without_eager_sharding(place: Location) -> None:
    """JAX refuses constraints of arrays that are on no mesh, as those of docs/meshes.md."""
    with place.block(), nnx.use_eager_sharding(False):
        param = linear(rngs=nnx.Rngs(0)).kernel
        kernel = tf.Variable(param.get_value(), sharding=nnx.get_partition_spec(param).get_value())
    assert kernel.sharding == P("data", "model")


# States of Optax --------------------------------------------------------------------------------

PARAMS = {"w": np.sin(np.arange(64, dtype=np.float32)).reshape(8, 8), "b": np.ones(8, np.float32)}
SPECS = {"w": P("data", "model"), "b": P("model")}

OPTIMIZERS: dict[str, Any] = {
    "adam": optax.adam(0.1),
    "adamw": optax.adamw(0.1, weight_decay=0.1),
    "sgd with momentum": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "lion": optax.lion(0.1),
    "adafactor": optax.adafactor(0.1, min_dim_size_to_factor=4),
    "lamb": optax.lamb(0.1),
    "muon": optax.contrib.muon(0.1),
    "MultiSteps": optax.MultiSteps(optax.adam(0.1), every_k_schedule=2),
    "masked": optax.masked(optax.sgd(0.1, 0.9), {"w": True, "b": False}),
    "partition": optax.partition({1: optax.adam(0.1), 2: optax.sgd(0.1, 0.9)}, {"w": 1, "b": 2}),
}


def spec_of_state(value: Any, param: Any, spec: P) -> Any:
    """The sharding of a leaf of a state: that of its parameter, if it has the same shape."""
    if isinstance(value, optax.MaskedNode):
        return value
    return spec if value.shape == param.shape else P()


def updated(tx: Any, params: Any, state: Any, x: Any) -> Any:
    """The loss of a linear model, its new parameters, and the new state."""

    def loss(params: Any) -> Any:
        return jnp.mean(jnp.tanh(x @ params["w"] + params["b"]) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    updates, state = tx.update(grads, state, params)
    return value, optax.apply_updates(params, updates), state


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_of_optax_stays_sharded_as_its_parameters(name: str, place: Location) -> None:
    tx = OPTIMIZERS[name]
    state = place.call(tx.init, PARAMS)
    specs = optax.tree.map_params(
        *(tx, spec_of_state, state, PARAMS, SPECS),
        transform_non_params=lambda _: P(),
        is_leaf=lambda x: isinstance(x, optax.MaskedNode),
    )
    variables = place.variables((PARAMS, state), (SPECS, specs))

    @tf.function
    def step(x: Any) -> Any:
        with place.block():
            params, state = values(variables)
            loss, *new = updated(tx, params, state, x)
            jax.tree.map(lambda variable, value: variable.assign(value), variables, tuple(new))
            return loss

    params, state = PARAMS, tx.init(PARAMS)
    on_one_device = jax.jit(partial(updated, tx))
    for _ in range(2):
        loss, params, state = on_one_device(params, state, X)
        assert_close(step(X), loss)
    assert_close(values(variables), (params, state))
    place.check(variables, (SPECS, specs))


# What programs constrain ------------------------------------------------------------------------

KEY = jax.random.key(0)
MLP = eqx.nn.MLP(8, 4, 16, 1, key=KEY)
CONV = eqx.nn.Conv1d(4, 4, 3, padding=1, key=KEY)
ATTENTION = eqx.nn.MultiheadAttention(2, 8, key=KEY)
LAYERS = eqx.filter_vmap(lambda key: eqx.nn.Linear(8, 8, key=key))(jax.random.split(KEY, 4))
"""Models, and four layers as one."""
shard = eqx.filter_shard


def shard_each_weight(mesh: Mesh, x: Any) -> Any:
    """Shardings in a tree like that of the model."""
    arrays, static = eqx.partition(MLP, eqx.is_array)
    shardings = jax.tree.map(lambda weight: on(mesh, *AXES[: weight.ndim]), arrays)
    return shard(jax.vmap(eqx.combine(shard(arrays, shardings), static))(x), on(mesh, "data"))


def train_step(mesh: Mesh, x: Any) -> Any:
    """The step of Equinox' example of parallelism; returns the new weight."""
    replicated, tx = on(mesh), optax.adam(0.1)

    @eqx.filter_jit
    def step(model: Any, state: Any, x: Any) -> Any:
        model, state = shard((model, state), replicated)
        x = shard(x, on(mesh, "data"))
        grads = eqx.filter_grad(lambda model: jnp.mean(jax.vmap(model)(x) ** 2))(model)
        updates, state = tx.update(grads, state, eqx.filter(model, eqx.is_array))
        return shard((eqx.apply_updates(model, updates), state), replicated)

    model, _ = step(MLP, tx.init(eqx.filter(MLP, eqx.is_array)), x)
    return shard(model.layers[0].weight, on(mesh, "model", "data"))


def ensemble(mesh: Mesh, x: Any) -> Any:
    """Models made by `filter_vmap`, two on each device of an axis."""
    each = eqx.filter_vmap(lambda model, x: jax.vmap(model)(x), in_axes=(eqx.if_array(0), None))
    return shard(each(shard(LAYERS, on(mesh, "model")), x), on(mesh, "model", "data"))


def scan_over_layers(mesh: Mesh, x: Any) -> Any:
    arrays, static = eqx.partition(LAYERS, eqx.is_array)

    @eqx.filter_checkpoint
    def layer(x: Any, arrays: Any) -> Any:
        x = jnp.tanh(jax.vmap(eqx.combine(arrays, static))(x))
        return shard(x, on(mesh, "data", "model"))

    def loss(x: Any) -> Any:
        by_rows = shard(arrays, on(mesh, None, "model"))
        return jnp.sum(jax.lax.scan(lambda x, one: (layer(x, one), None), x, by_rows)[0] ** 2)

    return shard(eqx.filter_grad(loss)(x), on(mesh, "data"))


def logical(mesh: Mesh, x: Any) -> Any:
    with nn.logical_axis_rules(RULES):
        return nn.with_logical_constraint(jnp.sin(x), ("batch", "hidden"), mesh=mesh)


CONSTRAINED: dict[str, tuple[Callable[[Mesh, Any], Any], P]] = {
    "a spec": (
        lambda _, x: shard(jax.vmap(shard(MLP.layers[0], P("model")))(x), P(*AXES)),
        P(*AXES),
    ),
    "an abstract mesh": (
        lambda mesh, x: shard(jnp.cumsum(x, 1), on(mesh.abstract_mesh, None, AXES)),
        P(None, AXES),
    ),
    "each weight": (shard_each_weight, P("data", None)),
    "a training step": (train_step, P("model", "data")),
    "an ensemble": (ensemble, P("model", "data", None)),
    "scan over layers": (scan_over_layers, P("data", None)),
    "Conv1d": (
        lambda mesh, x: shard(shard(CONV, on(mesh, "model"))(x), on(mesh, "data", "model")),
        P("data", "model"),
    ),
    "MultiheadAttention": (
        lambda mesh, x: shard(shard(ATTENTION, on(mesh, "model"))(x, x, x), on(mesh, AXES)),
        P(AXES, None),
    ),
    "linen.with_logical_constraint": (logical, P("data", "model")),
    "a new nnx.Linear": (lambda mesh, x: linear(rngs=nnx.Rngs(0)).kernel.get_value(), P(*AXES)),
}


@pytest.mark.parametrize("name", CONSTRAINED)
def test_a_constraint_decides_how_a_result_is_sharded(name: str, place: Location) -> None:
    program, spec = CONSTRAINED[name]
    with jax.set_mesh(ONE):
        wanted = np.asarray(jax.jit(partial(program, ONE))(X))
    assert_close(place.call(partial(program, HERE), X), wanted)
    with place.block():
        variable = tf.Variable(lambda: program(HERE, jnp.asarray(X)))
    place.check([variable], [spec])
    assert_close(variable.numpy(), wanted)


def test_a_model_that_equinox_has_sharded_in_this_process_is_an_argument(place: Location) -> None:
    arrays, static = eqx.partition(MLP, eqx.is_array)
    arrays, x = shard((arrays, X), (on(HERE, "model"), on(HERE, *AXES)))
    found = place.call(lambda arrays, x: jax.vmap(eqx.combine(arrays, static))(x), arrays, x)
    assert_close(found, jax.jit(jax.vmap(MLP))(X))
    variable = place.variables(arrays.layers[0].weight, arrays.layers[0].weight.sharding)
    place.check([variable], [P("model", None)])
    assert_close(variable.numpy(), MLP.layers[0].weight)


# Orbax ------------------------------------------------------------------------------------------


def test_orbax_restores_what_a_mesh_saved(place: Location, tmp_path: Path) -> None:
    variables = place.variables(PARAMS, SPECS)
    place.check(variables, SPECS)
    tf.checkpoint.save(str(tmp_path / "saved"), variables)
    with open_checkpoint(tmp_path / "saved") as checkpoint:
        write_orbax(checkpoint, tmp_path / "orbax")
    shardings = {"w": on(HERE, "model", None), "b": on(HERE, AXES)}
    target = {
        k: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=shardings[k]) for k, x in PARAMS.items()
    }
    with ocp.StandardCheckpointer() as reader:
        found = reader.restore(tmp_path / "orbax", target)
    assert {name: array.sharding for name, array in found.items()} == shardings
    jax.tree.map(np.testing.assert_array_equal, found, PARAMS)


def test_a_mesh_restores_what_orbax_saved(place: Location, tmp_path: Path) -> None:
    arrays = jax.device_put(PARAMS, {"w": on(HERE, "model", "data"), "b": on(HERE, "data")})
    with ocp.StandardCheckpointer() as writer:
        writer.save(tmp_path / "orbax", arrays)
    variables = place.variables(jax.tree.map(np.zeros_like, PARAMS), SPECS)
    tf.checkpoint.restore(str(tmp_path / "orbax"), variables)
    place.check(variables, SPECS)
    jax.tree.map(np.testing.assert_array_equal, values(variables), PARAMS)
