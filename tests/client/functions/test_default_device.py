"""The device of a call in this process where no block requests one: that of `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from tests.clusters import Backend

FIRST, SECOND, THIRD = jax.local_devices(backend="cpu")[:3]
HERE, THERE = (jax.device_put(np.ones(3, np.float32), device) for device in (FIRST, SECOND))
FREE = np.float32([1, 2, 3])

CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "nothing": (lambda: jnp.arange(3) * 2, ()),
    "a number": (lambda x: x + 1, (1.0,)),
    "an uncommitted array": (lambda x: x * 2, (jnp.ones(3),)),
    "a committed array": (lambda x: x * 2, (THERE,)),
    "one of the first device": (lambda x: x * 2, (HERE,)),
    "a part of an argument": (lambda x, y: x["a"][0] + y, ({"a": [THERE]}, FREE)),
    "a key": (jax.random.normal, (jax.device_put(jax.random.key(1), SECOND),)),
    "a loop": (lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x + i, x), (THERE,)),
    "an argument that it returns": (lambda x: (x, x + 1), (THERE,)),
}


@pytest.mark.parametrize("default", [None, SECOND, THIRD, "cpu"], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_results_are_where_those_of_jit_are(name: str, default: Any) -> None:
    fun, args = CALLS[name]
    call = tf.function(fun)
    with tf.connect():
        for device in (None, default, None):
            with nullcontext() if device is None else jax.default_device(device):
                found, wanted = call(*args), jax.jit(fun)(*args)
            for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
                assert x.devices() == y.devices()
                np.testing.assert_array_equal(x, y)


def test_a_call_follows_each_argument_anew() -> None:
    call = tf.function(lambda x, y: x + y)
    with tf.connect():
        for x in (FREE, THERE, HERE, jnp.ones(3), THERE):
            wanted = THERE if x is THERE else HERE
            assert call(x, FREE).devices() == wanted.devices()
        first = call(FREE, FREE)
        assert call(first, THERE).devices() == THERE.devices(), "a result of before is moved"


def test_a_device_block_and_a_variable_are_requests() -> None:
    with tf.connect():
        with tf.device("/cpu:2"):
            assert tf.function(lambda x: x * 2)(THERE).devices() == {THIRD}

        @tf.function
        def inside(x: Any) -> Any:
            with tf.device("/cpu:2"):
                y = x * 2
            return y, x * 3

        assert [y.devices() for y in inside(THERE)] == [{THIRD}, {SECOND}]
        variable = tf.Variable(FREE)
        count = tf.function(lambda x: variable.assign_add(x) * 1.0)
        with jax.default_device(THIRD):
            assert count(THERE).devices() == {SECOND}
        np.testing.assert_array_equal(variable.value(), FREE + 1)
        assert tf.function(lambda x: variable + x)(FREE).devices() == {FIRST}


def test_in_a_graph_a_default_device_requests_nothing() -> None:
    with tf.Graph().as_default(), jax.default_device(SECOND):
        x, v = tf.placeholder(tf.float32, (3,)), tf.Variable(FREE)
        for y in (tf.function(lambda x: x * 2)(x), tf.function(lambda: v * 2)()):
            assert y.op.device == ""


@pytest.mark.parametrize("backend", ["processes"], indirect=True)
@pytest.mark.usefixtures("connection")
def test_devices_of_this_process_are_none_of_a_cluster(backend: Backend) -> None:
    with jax.default_device(SECOND):
        np.testing.assert_array_equal(tf.function(lambda x: x * 2)(THERE), THERE * 2)
