"""Which operation of a program JAX cannot export, for platforms that this machine does not have."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas

import jflow as tf
from jflow.compiler import lowering
from jflow.compiler.partition import prune
from jflow.errors import InvalidArgumentError, OpError, UnimplementedError

HERE = re.escape(__file__)


def _export(platform: str, fun: Any, *shape: int) -> None:
    x = tf.placeholder("float32", shape)
    y = tf.get_default_graph().apply(fun, (x + 1,)) * 2
    ops = prune(x.graph, [], [y], {x})
    lowered = lowering.lower(ops, (), (x,), (), (y,))
    with lowering.explained(ops, platform):
        lowering.export(lowered.jaxpr, platform)


def _kernel(x: Any) -> Any:
    def double(x_ref: Any, y_ref: Any) -> None:
        y_ref[...] = x_ref[...] * 2

    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pallas.pallas_call(double, out_shape=shape)(x)


def _hessenberg(x: Any) -> Any:
    return jax.lax.linalg.hessenberg(jnp.sin(x[:, :8]))[0]


@pytest.mark.parametrize(
    ("platform", "fun", "kind", "words"),
    [
        ("tpu", _kernel, InvalidArgumentError, "'tpu_custom_call'"),
        ("cpu", _kernel, InvalidArgumentError, "interpret mode"),
        ("cuda", _hessenberg, UnimplementedError, "'hessenberg' not found for platform cuda"),
    ],
)
def test_what_a_platform_does_not_take_names_operation_and_line(
    platform: str, fun: Any, kind: type[OpError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        _export(platform, fun, 8, 128)
    assert re.search(rf"operation '\w+': '\w+' \(at {HERE}:\d+ in \w+\)", str(caught.value))
    assert caught.value.op is not None


def test_a_program_that_fails_only_as_a_whole_names_its_first_operations() -> None:
    x = tf.placeholder("float32", ())
    y = x + 1
    with (
        pytest.raises(InvalidArgumentError, match=r"the program of 'add' cannot.*no idea"),
        lowering.explained([y.op], "cpu"),
    ):
        raise ValueError("no idea")
