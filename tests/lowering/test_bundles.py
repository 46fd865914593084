"""Programs that make bundles and take them apart: the same bits arrive."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jflow as tf
from jflow import lowering
from jflow.graph.bundle import Bundle
from jflow.partition import prune
from tests.lowering.programs import run

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
