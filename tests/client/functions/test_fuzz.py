"""Whatever a session, a function or a scope is given: a clear error, and all goes on after it."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jflow as tf
from tests.clusters import BACKENDS, Backend
from tests.drawn import examples

EXPECTED = (tf.errors.OpError, TypeError, ValueError, OverflowError, RuntimeError)
_LIMITS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

Pair = namedtuple("Pair", "first second")


class Odd:
    """An unexpected object."""

    def __repr__(self) -> str:
        return "Odd()"


class Unhashable:
    """As odd, and no key."""

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Surrounding:
    """A session with a graph, and a function, that must survive everything."""

    backend: Backend
    session: tf.Session
    x: tf.Tensor
    y: tf.Tensor
    variable: tf.Variable
    connection: tf.function.Connection
    live: tf.Variable
    function: Any

    def check(self) -> None:
        """Asserts that they work."""
        assert self.session.run(self.y, {self.x: [1.0, 2.0]}).tolist() == [2.0, 4.0]
        assert np.asarray(self.function(jnp.float32([1, 2]))).tolist() == [4.0, 5.0]


@pytest.fixture(scope="module", params=["local", "in_process"])
def surrounding(request: pytest.FixtureRequest) -> Iterator[Surrounding]:
    graph = tf.Graph()
    with BACKENDS[request.param]() as backend:
        with graph.as_default(), tf.device(backend.devices[-1]):
            x = tf.placeholder("float32", (2,), name="x")
            y = tf.numpy.multiply(x, 2.0)
            variable = tf.Variable(jnp.zeros(2), name="variable")
        with (
            closing(backend.session(graph=graph)) as session,
            tf.connect(backend.targets[0]) as connection,
        ):
            session.run(variable.initializer)
            live = tf.Variable(3.0, name="live")
            function = tf.function(lambda a: a + live.value())
            yield Surrounding(backend, session, x, y, variable, connection, live, function)


def _arrays() -> st.SearchStrategy[Any]:
    dtypes = ["float32", "int32", "bool", "float64", "int64", "complex64", "U3", "O", "M8[s]", "V3"]
    shapes = st.sampled_from([(), (2,), (0,), (3,), (2, 1), (1, 2, 0)])
    return st.builds(lambda dtype, shape: np.zeros(shape, dtype), st.sampled_from(dtypes), shapes)


def _junk() -> st.SearchStrategy[Any]:
    numbers = st.integers(-(2**70), 2**70) | st.floats(width=32) | st.complex_numbers(width=64)
    plain = st.none() | st.booleans() | numbers | st.text(max_size=8) | st.binary(max_size=4)
    made = st.builds(Odd) | st.builds(Unhashable) | st.just(object) | st.just(len)
    return plain | made | _arrays() | st.just(jnp.ones(2)) | st.just(jax.random.key(0))


def _trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.text(max_size=3) | st.integers(0, 3)
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(keys, inner, max_size=3)
            | st.builds(Pair, inner, inner)
        ),
        max_leaves=5,
    )


def _survives(surrounding: Surrounding, call: Callable[[], Any]) -> None:
    """Asserts that a call gives something, or an error of an expected kind that says something."""
    error = None
    try:
        call()
    except EXPECTED as raised:
        error = raised
    assert error is None or str(error)
    surrounding.check()


def _names() -> st.SearchStrategy[str]:
    known = st.sampled_from(["x", "x:0", "multiply:0", "variable", "variable:0", "x:1", ":"])
    return known | st.text(max_size=6) | st.from_regex(r"[a-z/^]{1,4}:[0-9]{1,20}", fullmatch=True)


@given(st.data())
@settings(max_examples=examples(20), suppress_health_check=_LIMITS)
def test_any_fetches_and_feeds(surrounding: Surrounding, data: st.DataObject) -> None:
    known = [
        surrounding.x,
        surrounding.y,
        surrounding.variable,
        surrounding.y.op,
        surrounding.variable.initializer,
    ]
    other = tf.Graph()
    with other.as_default():
        foreign = tf.constant(1.0)
    leaves = st.sampled_from([*known, foreign, surrounding.live]) | _names() | _junk()
    fetches = data.draw(_trees(leaves))
    hashable = leaves.filter(lambda leaf: getattr(type(leaf), "__hash__", None) is not None)
    hashable = hashable.filter(lambda leaf: not isinstance(leaf, np.ndarray | jax.Array))
    feeds = data.draw(
        st.none()
        | _junk()
        | st.dictionaries(st.sampled_from(known) | _names() | hashable, _trees(_junk()), max_size=2)
        | _trees(_junk()).map(lambda value: {surrounding.x: value})
    )
    _survives(surrounding, lambda: surrounding.session.run(fetches, feeds))


@given(st.data())
@settings(max_examples=examples(20), suppress_health_check=_LIMITS)
def test_any_arguments_of_a_function(surrounding: Surrounding, data: st.DataObject) -> None:
    leaves = _junk() | st.sampled_from([surrounding.live, surrounding.variable, surrounding.y])
    args = data.draw(st.lists(_trees(leaves), max_size=2))
    kwargs = data.draw(st.dictionaries(st.sampled_from("abc"), _trees(leaves), max_size=1))
    static = data.draw(st.sampled_from([(), 0, (0, 1), -1, 7]))

    def anything(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs, surrounding.live

    _survives(surrounding, lambda: tf.function(anything, static_argnums=static)(*args, **kwargs))
    _survives(surrounding, lambda: surrounding.function(*args, **kwargs))


@given(st.data())
@settings(max_examples=examples(15), suppress_health_check=_LIMITS)
def test_any_result_of_a_function(surrounding: Surrounding, data: st.DataObject) -> None:
    result = data.draw(
        _trees(_junk() | st.sampled_from([surrounding.live, surrounding.variable, surrounding.y]))
    )
    _survives(surrounding, lambda: tf.function(lambda x: (result, x))(1.0))


@given(st.data())
@settings(max_examples=examples(15), suppress_health_check=_LIMITS)
def test_any_device_and_name(surrounding: Surrounding, data: st.DataObject) -> None:
    part = st.sampled_from(
        ["/job:worker", "/job:ps", "/job:", "/task:0", "/task:99999999999", "/task:-1", "/cpu:0"]
    )
    part = part | st.sampled_from(
        ["/device:CPU:1", "/device:GPU:0", "/cpu:*", "/", "cpu", "/job:a b"]
    )
    device = data.draw(st.lists(part, max_size=4).map("".join) | st.text(max_size=6) | _junk())
    name = data.draw(_names() | _junk())

    def use() -> Any:
        with tf.device(device):
            return tf.function(lambda x: x * 2)(1.0)

    def make() -> Any:
        with tf.device(device):
            return tf.Variable(1.0, name=name).assign_add(1.0)

    def build() -> Any:
        graph = tf.Graph()
        with graph.as_default(), tf.name_scope(name), tf.device(device):
            tensor = tf.constant(1.0, name=name) * 2
        with closing(surrounding.backend.session(graph=graph)) as session:
            return session.run(tensor)

    for call in (use, make, build):
        _survives(surrounding, call)


@given(st.data())
@settings(max_examples=examples(15), suppress_health_check=_LIMITS)
def test_any_value_of_a_variable(surrounding: Surrounding, data: st.DataObject) -> None:
    value = data.draw(_trees(_junk()))
    _survives(surrounding, lambda: tf.Variable(value))
    for write in (surrounding.live.assign, surrounding.live.assign_add, surrounding.live.load):

        def write_and_back(write: Callable[[Any], Any] = write) -> None:
            try:
                write(value)
            finally:
                surrounding.live.assign(3.0)

        _survives(surrounding, write_and_back)
