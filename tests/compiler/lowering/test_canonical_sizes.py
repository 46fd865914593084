"""Equal programs of unknown sizes are equal bytes, whatever was made before them."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.base.values import canonical_sizes, unknown_dim
from jflow.compiler import lowering
from jflow.plan import xla
from jflow.plan.xla import jaxprs
from tests.compiler.lowering.programs import digest, lowered

CPU = jax.local_devices(backend="cpu")[0]
CPUS = jax.export.symbolic_shape("n", scope=jax.export.SymbolicScope(["n >= 3"]))


def _rolled(x):
    return jax.lax.fori_loop(0, x.shape[0], lambda i, a: jnp.roll(a, i), x)


def _branched(x):
    return jax.lax.cond(x.sum() > 0, lambda a: jnp.concatenate([a, a]), lambda a: jnp.tile(a, 2), x)


@jax.custom_jvp
def _custom(x):
    return jnp.sin(x) * x.shape[0]


_custom.defjvp(lambda x, t: (_custom(*x), jnp.cos(x[0]) * t[0]))

FUNCTIONS = {
    "softmax": jax.nn.softmax,
    "mean": jnp.mean,
    "reshape": lambda x: jnp.reshape(x, (-1, 1)) * jnp.arange(x.size)[:, None],
    "pad": lambda x: jnp.pad(x, 1),
    "sort": lambda x: x[jnp.argsort(x)],
    "half": lambda x: x[: x.shape[0] // 2 + 1],
    "last": lambda x: x[-2:] * jax.core.max_dim(x.shape[0], 4),
    "scan": lambda x: jax.lax.scan(lambda c, row: (c + row, c), jnp.zeros(()), x)[1],
    "loop": _rolled,
    "branches": _branched,
    "jit": jax.jit(lambda x: jnp.outer(x, x)),
    "custom_jvp": jax.grad(lambda x: _custom(x).sum()),
    "vmap": jax.vmap(lambda a: a * 2),
    "checkpoint": jax.grad(jax.checkpoint(lambda x: jnp.sin(x).sum())),
    "random": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
    "eye": lambda x: jnp.eye(x.shape[0]) @ x,
    "cumsum": jnp.cumsum,
}


def _program(fun):
    with tf.Graph().as_default():
        x = tf.placeholder("float32", (None,))
        return lowered(tf.get_default_graph().apply(fun, (x,)), inputs=(x,))


def _symbols_before(n):
    for _ in range(n):
        unknown_dim()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_program_of_an_unknown_size_has_one_digest(name):
    found = set()
    for n in (0, 1, 97):
        _symbols_before(n)
        found.add(xla.digest_of(lowering.export(_program(FUNCTIONS[name]).jaxpr, "cpu")))
    assert len(found) == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_computes_what_it_computed(name):
    program = _program(FUNCTIONS[name])
    (compiled,) = lowering.compile_all([(program, CPU, ())])
    for n in (2, 5):
        x = np.linspace(-1, 1, n, dtype=np.float32)
        wanted = jax.jit(FUNCTIONS[name])(x)
        (got,) = compiled(x, *program.constants)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_symbol_keeps_its_number(name):
    jaxpr = _program(FUNCTIONS[name]).jaxpr
    rename = canonical_sizes(aval.shape for aval in jaxpr.in_avals)
    renamed = jaxprs.Resizing(rename).closed(jaxpr)
    number = str(jaxpr.in_avals[0].shape[0])
    assert number in str(jaxpr)
    assert number not in str(renamed)
    assert str(renamed.in_avals[0].shape) == "(a,)"


def _two(first, second):
    x, y = (tf.placeholder("float32", (None, first)), tf.placeholder("float32", (None, second)))
    return x, y


def test_several_sizes_are_named_in_the_order_of_the_arguments():
    found = set()
    for before, swapped in ((0, False), (7, True), (89, False)):
        _symbols_before(before)
        x, y = tf.placeholder("float32", (None, 2)), tf.placeholder("float32", (None, 2))
        x, y = (y, x) if swapped else (x, y)
        both = tf.numpy.concatenate([x, y], 0)
        found.add(digest(both * both.shape[0], inputs=(x, y)))
    assert len(found) == 1


def test_two_sizes_are_not_taken_for_one():
    x, y = tf.placeholder("float32", (None,)), tf.placeholder("float32", (None,))
    size = unknown_dim()
    a, b = tf.placeholder("float32", (size,)), tf.placeholder("float32", (size,))
    two = digest(tf.numpy.sum(x) + tf.numpy.sum(y), inputs=(x, y))
    assert two != digest(tf.numpy.sum(a) + tf.numpy.sum(b), inputs=(a, b))


def test_a_size_that_is_a_function_of_sizes_is_renamed():
    found = set()
    for before in (0, 7, 89):
        _symbols_before(before)
        n, m = unknown_dim(), unknown_dim()
        x, y = tf.placeholder("float32", (n + 2 * m,)), tf.placeholder("float32", (m, n))
        found.add(digest(x * 2, tf.numpy.sum(y), inputs=(x, y)))
    assert len(found) == 1


def test_a_size_source_does_not_depend_on_the_names_of_sizes():
    """Names are compared as text elsewhere, where n10 is before n9."""
    found = set()
    for _ in range(12):
        x, y = tf.placeholder("float32", (None,)), tf.placeholder("float32", (None,))
        out = tf.numpy.zeros((y.shape[0], x.shape[0]))
        step = tf.get_default_graph().apply(lambda a: a + 1, (out,))
        found.add(digest(step, inputs=(x, y)))
    assert len(found) == 1


@pytest.mark.parametrize("shape", [(3,), CPUS, (*CPUS, unknown_dim())], ids=str)
def test_sizes_that_are_known_or_made_elsewhere_keep_their_names(shape):
    assert canonical_sizes([shape]) is None


def test_a_program_whose_symbols_are_hidden_from_renaming_is_exported_as_it_is(monkeypatch):
    jaxpr = _program(jnp.cumsum).jaxpr
    number = str(jaxpr.in_avals[0].shape[0])
    monkeypatch.setattr(jaxprs.Resizing, "_param", jaxprs.Rewriting._param)
    exported = jax.export.deserialize(bytearray(lowering.export(jaxpr, "cpu").tobytes()))
    assert str(exported.in_avals[0].shape) == f"({number},)"


def test_another_process_gives_the_same_digest():
    program = (
        "import jflow as tf\n"
        "for _ in range(23): tf.placeholder('float32', (None,))\n"
        "from tests.compiler.lowering.programs import digest\n"
        "x = tf.placeholder('float32', (None, None))\n"
        "print(digest(tf.nn.softmax(x), inputs=(x,)))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "11"},
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    x = tf.placeholder("float32", (None, None))
    assert done.stdout.strip() == digest(tf.nn.softmax(x), inputs=(x,))


def test_many_sizes_have_names():
    dims = [unknown_dim() for _ in range(60)]
    rename = canonical_sizes([dims])
    names = [str(rename(dim)) for dim in dims]
    assert names[:2] + names[25:28] == ["a", "b", "z", "aa", "ab"]
    assert len(set(names)) == 60
