"""Programs that make bundles and take them apart: the same bits arrive."""

from __future__ import annotations

import jax
import jax.extend.core as jex
import numpy as np
import pytest

import jflow as tf
from jflow.compiler import lowering
from jflow.compiler.graph.bundle import Bundle
from jflow.compiler.lowering.segment import MIN_APART
from jflow.compiler.partition import prune
from tests.compiler.lowering.programs import run

CPU = jax.local_devices(backend="cpu")[0]
SHAPES = [(), (3,), (2, 3), (1, 1, 2)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint32", "bool", "complex64"])
def test_what_is_taken_out_of_a_bundle_is_what_went_in(dtype: str) -> None:
    tensors = tuple(tf.placeholder(dtype, shape) for shape in SHAPES)
    bundle = Bundle(tensors)
    bits = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 256, (12, 8), np.uint8)
    values, start = [], 0
    for tensor, size in zip(tensors, bundle.sizes, strict=True):
        whole = np.resize(bits[start : start + size], (size, np.dtype(tensor.dtype).itemsize))
        values.append(np.ascontiguousarray(whole).view(tensor.dtype).reshape(tensor.shape))
        start += size
    (packed,) = run(lowering.lower((), (), tensors, (), [bundle]), CPU, *values)
    assert packed.shape == (12,)
    copies = [tf.numpy.reshape(tensor, (*tensor.shape, 1)) for tensor in tensors]
    ops = prune(tf.get_default_graph(), [], copies, set(tensors))
    taken = run(lowering.lower(ops, (), [bundle], (), copies), CPU, packed)
    assert [one.tobytes() for one in taken] == [one.tobytes() for one in values]


def test_a_program_takes_out_only_what_it_uses() -> None:
    tensors = tuple(tf.placeholder("float32", (2,)) for _ in range(100))
    doubled = tensors[70] * 2.0
    ops = prune(tf.get_default_graph(), [], [doubled], set(tensors))
    program = lowering.lower(ops, (), [Bundle(tensors)], (), [doubled])
    names = [eqn.primitive.name for eqn in program.jaxpr.jaxpr.eqns]
    assert names.count("slice") == 1
    (found,) = run(program, CPU, np.arange(200, dtype=np.float32))
    assert found.tolist() == [280.0, 282.0]


def test_many_scalars_are_joined_apart_so_that_their_equal_kernels_are_compiled_once() -> None:
    source = tf.placeholder("float32", ())
    scalars = tuple(source * float(number) for number in range(MIN_APART))
    ops = prune(tf.get_default_graph(), [], scalars, {source})
    program = lowering.lower(ops, (), [source], (), [Bundle(scalars)])
    stages = jax.jit(jex.jaxpr_as_fun(program.jaxpr)).lower(np.float32(1)).compile()
    assert " call(" in stages.as_text()
    (found,) = run(program, CPU, np.float32(2))
    assert found.tolist() == [2.0 * number for number in range(MIN_APART)]
    elsewhere = lowering.lower(ops, (), [source], (), [Bundle(scalars)], for_cpu=False)
    assert "jit" not in {eqn.primitive.name for eqn in elsewhere.jaxpr.jaxpr.eqns}
