"""Every optimizer of Optax trains over two tasks as it does under `jax.jit`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jflow as tf
from tests.clusters import Backend, in_process

N_STEPS = 3


def _optimizers() -> dict[str, Callable[..., Any]]:
    """What Optax makes public with a learning rate, by name."""
    found = {}
    for module in (optax, optax.contrib):
        for name, make in inspect.getmembers(module, inspect.isfunction):
            is_part = name.startswith(("_", "scale_by_"))
            takes = inspect.signature(make).parameters
            required = {p.name for p in takes.values() if p.default is p.empty and p.kind < 2}
            if not is_part and "learning_rate" in takes and required <= {"learning_rate"}:
                found[name] = make
    return found


OPTIMIZERS = _optimizers()
SHORT = ("adam", "galore", "lbfgs", "momo_adam", "noisy_sgd", "schedule_free_adamw", "sgd", "sm3")
"""One of each kind: their states and what their updates take differ. The others are like these."""


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with in_process() as backend:
        yield backend


@pytest.fixture(scope="module")
def connection(backend: Backend) -> Iterator[tf.function.Connection]:
    with tf.connect(backend.targets[0]) as connection:
        yield connection


def _loss(params: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ params["w"]) + params["b"] - y) ** 2)


def _data() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    params = {"w": draw(4, 2), "b": draw(2)}
    return params, draw(8, 4), draw(8, 2)


def _raw(tree: Any) -> Any:
    """The tree with numbers for random keys, which variables do not hold."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, tree)


def _typed(tree: Any, like: Any) -> Any:
    """The tree with random keys where another has them."""
    return jax.tree.map(lambda x, y: jax.random.wrap_key_data(x) if _is_key(y) else x, tree, like)


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _step(name: str, optimizer: Any, params: Any, state: Any, x: Any, y: Any) -> Any:
    value, grads = jax.value_and_grad(_loss)(params, x, y)
    again = functools.partial(_loss, x=x, y=y)
    extra = {"value": value, "grad": grads, "value_fn": again}
    if name == "sophia":
        extra["obj_fn"] = again
    updates, state = optax.with_extra_args_support(optimizer).update(grads, state, params, **extra)
    return optax.apply_updates(params, updates), state, value


@pytest.mark.filterwarnings("ignore:`optimistic_adam` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in SHORT else pytest.mark.long) for n in OPTIMIZERS],
)
@pytest.mark.usefixtures("connection")
def test_an_optimizer_trains_as_under_jit(backend: Backend, name: str) -> None:
    make = OPTIMIZERS[name]
    takes_rate = inspect.signature(make).parameters["learning_rate"].default is inspect._empty
    key = {"key": 0} if name == "noisy_sgd" else {}
    optimizer = make(*[0.05] * takes_rate, **key)
    params, x, y = _data()
    state = jax.jit(optimizer.init)(params)

    with tf.device(backend.devices[0]):
        weights = jax.tree.map(tf.Variable, params)
    with tf.device(backend.devices[-1]):
        memory = jax.tree.map(tf.Variable, _raw(state))

    @tf.function
    def train(x: Any, y: Any) -> Any:
        read = [jax.tree.map(lambda v: v.value(), tree) for tree in (weights, memory)]
        *changed, value = _step(name, optimizer, read[0], _typed(read[1], state), x, y)
        for variables, values in zip((weights, memory), changed, strict=True):
            jax.tree.map(lambda v, new: v.assign(new), variables, _raw(values))
        return value

    plain = jax.jit(lambda *args: _step(name, optimizer, *args))
    for _ in range(N_STEPS):
        params, state, wanted = plain(params, state, x, y)
        np.testing.assert_allclose(train(x, y), wanted, rtol=1e-4)
    for variables, values in ((weights, params), (memory, _raw(state))):
        jax.tree.map(
            lambda v, value: np.testing.assert_allclose(v.numpy(), value, rtol=1e-3, atol=1e-5),
            variables,
            values,
        )


def test_these_are_all_the_optimizers() -> None:
    assert len(OPTIMIZERS) > 40
    assert {"sgd", "adam", "adamw", "lion", "lamb", "lbfgs", "muon", "sm3"} <= set(OPTIMIZERS)
    assert set(SHORT) <= set(OPTIMIZERS)


def test_lbfgs_searches_a_line_over_a_model_on_two_devices(
    backend: Backend, connection: tf.function.Connection
) -> None:
    params, x, y = _data()
    first, *_, last = backend.devices

    def loss(params: Any) -> Any:
        with tf.device(first):
            hidden = jnp.tanh(x @ params["w"])
        with tf.device(last):
            return jnp.mean((hidden + params["b"] - y) ** 2)

    solver = optax.lbfgs()

    def step(params: Any, state: Any) -> Any:
        value, slopes = optax.value_and_grad_from_state(loss)(params, state=state)
        updates, state = solver.update(
            slopes, state, params, value=value, grad=slopes, value_fn=loss
        )
        return optax.apply_updates(params, updates), state, value

    plain, placed = jax.jit(step), tf.function(step)
    wanted = found = params, solver.init(params)
    for _ in range(3):
        *wanted, value = plain(*wanted)
        *found, same = placed(*found)
        np.testing.assert_allclose(same, value, 1e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-3, 1e-4), found[0], wanted[0])
