"""Models of Flax, trained over two tasks as under `jax.jit`: layers on different devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import jflow as tf
from tests.clusters import BACKENDS, Backend

N_STEPS = 2


@pytest.fixture(scope="module", params=["in_process"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with BACKENDS[request.param]() as backend:
        yield backend


class Convolutional(linen.Module):
    """Two convolutions with batch statistics, and dropout."""

    @linen.compact
    def __call__(self, images: Any, key: Any) -> Any:
        x = linen.relu(linen.Conv(4, (3, 3))(images))
        x = linen.avg_pool(x, (2, 2), strides=(2, 2))
        x = linen.relu(linen.Conv(4, (3, 3))(linen.GroupNorm(2)(x)))
        x = x.reshape((x.shape[0], -1))
        keep = jax.random.bernoulli(key, 0.8, x.shape)
        return linen.Dense(3)(jnp.where(keep, x, 0.0))


class Recurrent(linen.Module):
    """An LSTM over a sequence: a scan of a module."""

    @linen.compact
    def __call__(self, sequence: Any, key: Any) -> Any:
        hidden = linen.RNN(linen.OptimizedLSTMCell(5))(sequence)
        return linen.Dense(3)(hidden[:, -1])


class Transformer(linen.Module):
    """A block of attention and a checkpointed feed-forward part."""

    @linen.compact
    def __call__(self, sequence: Any, key: Any) -> Any:
        x = linen.LayerNorm()(sequence)
        x = sequence + linen.MultiHeadDotProductAttention(num_heads=2, qkv_features=4)(x, x)
        hidden = linen.gelu(linen.remat(linen.Dense)(8)(linen.LayerNorm()(x)))
        x = x + linen.Dense(x.shape[-1])(hidden)
        return linen.Dense(3)(jnp.mean(x, axis=1))


MODELS = {
    "convolutional": (Convolutional(), (2, 6, 6, 1)),
    "recurrent": (Recurrent(), (2, 4, 3)),
    "transformer": (Transformer(), (2, 4, 4)),
}
LABELS = np.int32([0, 2])


def _cross_entropy(logits: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits, LABELS).mean()


def _spread(backend: Backend, tree: Any) -> Any:
    """Live variables with the values of a tree, in turns on the devices."""
    leaves, structure = jax.tree.flatten(tree)
    variables = []
    for number, leaf in enumerate(leaves):
        with tf.device(backend.devices[number % len(backend.devices)]):
            variables.append(tf.Variable(leaf))
    return jax.tree.unflatten(structure, variables)


def _values(tree: Any) -> Any:
    return jax.tree.map(lambda variable: variable.value(), tree)


def _compare(
    train: Callable[..., Any], plain: Callable[..., Any], weights: Any, start: Any
) -> None:
    """Asserts that steps on variables give what steps from values to values give."""
    for number in range(N_STEPS):
        key = jax.random.PRNGKey(number)
        start, wanted = plain(start, key)
        np.testing.assert_allclose(train(key), wanted, rtol=1e-4)
    jax.tree.map(
        lambda variable, value: np.testing.assert_allclose(
            variable.numpy(), value, rtol=1e-3, atol=1e-5
        ),
        weights,
        start,
    )


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize(
    "name",
    [
        "transformer",
        pytest.param("convolutional", marks=pytest.mark.long),
        pytest.param("recurrent", marks=pytest.mark.long),
    ],
)
def test_a_linen_model_trains_as_under_jit(backend: Backend, name: str) -> None:
    model, shape = MODELS[name]
    x = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    start = jax.jit(model.init)(jax.random.PRNGKey(0), x, jax.random.PRNGKey(1))
    weights = _spread(backend, start)

    def step(params: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            with tf.device(backend.devices[0]):
                logits = model.apply(params, x, key)
            with tf.device(backend.devices[-1]):
                return _cross_entropy(logits)

        value, slopes = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, slope: p - 0.1 * slope, params, slopes), value

    @tf.function
    def train(key: Any) -> Any:
        changed, value = step(_values(weights), key)
        jax.tree.map(lambda variable, new: variable.assign(new), weights, changed)
        return value

    _compare(train, jax.jit(step), weights, start)


class Perceptron(nnx.Module):
    """Two layers."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(4, 5, rngs=rngs)
        self.norm = nnx.LayerNorm(5, rngs=rngs)
        self.second = nnx.Linear(5, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.second(nnx.relu(self.norm(self.first(x))))


X = np.float32([[1, 2, 3, 4], [0, -1, 1, 0.5]])


@pytest.mark.usefixtures("connection")
def test_an_nnx_model_trains_as_under_jit(backend: Backend) -> None:
    graphdef, start = nnx.split(Perceptron(nnx.Rngs(0)))
    weights = _spread(backend, start)

    def step(params: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            with tf.device(backend.devices[-1]):
                return _cross_entropy(nnx.merge(graphdef, params)(X + jax.random.uniform(key)))

        value, slopes = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, slope: p - 0.1 * slope, params, slopes), value

    @tf.function
    def train(key: Any) -> Any:
        changed, value = step(_values(weights), key)
        jax.tree.map(lambda variable, new: variable.assign(new), weights, changed)
        return value

    _compare(train, jax.jit(step), weights, start)


@pytest.mark.usefixtures("connection")
def test_an_nnx_state_goes_in_and_out_as_an_argument() -> None:
    graphdef, params = nnx.split(Perceptron(nnx.Rngs(0)))
    call = tf.function(lambda params, x: (nnx.merge(graphdef, params)(x), params))
    found, same = call(params, X)
    np.testing.assert_allclose(found, nnx.merge(graphdef, params)(X), rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, same, params)


class Decorated(Perceptron):
    """A model with a method that is a function."""

    @tf.function
    def logits(self, x: Any) -> Any:
        return self(x)


MODEL: Any = None


@pytest.fixture(scope="module")
def model() -> Decorated:
    """The model, which is also that of the global variable; to make it takes a second."""
    global MODEL  # noqa: PLW0603 - a case is about a global variable
    MODEL = Decorated(nnx.Rngs(0))
    return MODEL


USES: dict[str, Callable[[Decorated], Callable[[Any], Any]]] = {
    "closure": lambda model: tf.function(lambda x: model(x) * 2),
    "global": lambda _: tf.function(lambda x: MODEL(x) * 2),
    "gradient": lambda model: tf.grad(lambda x: jnp.sum(model(x))),
    "itself": tf.function,
    "bound": lambda model: tf.function(model.__call__),
    "partial": lambda model: tf.function(functools.partial(lambda m, x: m(x), model)),
    "partial by name": lambda model: tf.function(functools.partial(lambda x, m: m(x), m=model)),
    "static": lambda model: functools.partial(
        tf.function(lambda m, x: m(x), static_argnums=0), model
    ),
    "method": lambda model: model.logits,
}


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("where", USES)
def test_an_nnx_module_from_outside_is_refused_with_what_to_do(
    model: Decorated, where: str
) -> None:
    call = USES[where](model)
    with pytest.raises(TypeError, match=r"NNX module '\w+' \(Decorated\).*nnx\.split.*nnx\.merge"):
        call(X)


@pytest.mark.usefixtures("connection")
def test_an_nnx_module_is_an_argument_like_others() -> None:
    model = Perceptron(nnx.Rngs(0))
    call = tf.function(lambda model, x: model(x))
    np.testing.assert_allclose(call(model, X), model(X), rtol=1e-5)
    model.first.kernel[...] = model.first.kernel[...] * 2
    np.testing.assert_allclose(call(model, X), model(X), rtol=1e-5)
