"""Checks each private name of JAX that jflow touches against the JAX that is installed."""

import sys
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.compiler.graph import origin, request
from jflow.net.protocol.buffers import aligned_buffer
from jflow.plan.xla import internals


def _program_text():
    def fun(x):
        return jnp.sin(x) + jnp.cumsum(x)

    return jax.jit(fun).lower(jnp.ones(3)).as_text(debug_info=True)


def test_programs_name_files_unless_it_is_forbidden():
    assert __file__ in _program_text()
    with internals.no_source_locations():
        text = _program_text()
    assert ".py" not in text
    assert __file__ in _program_text()


def test_the_setting_is_for_this_thread_only():
    texts = []
    with internals.no_source_locations():
        thread = threading.Thread(target=lambda: texts.append(_program_text()))
        thread.start()
        thread.join()
    assert __file__ in texts[0]


def test_the_setting_ends_with_an_error_in_its_block():
    with pytest.raises(KeyError), internals.no_source_locations():
        raise KeyError
    assert __file__ in _program_text()


def test_metadata_of_the_device_scope_is_carried_by_equations_through_a_gradient():
    def fun(x):
        with tf.device("/job:ps/task:3"):
            return jnp.sin(x) * 2

    jaxpr = jax.make_jaxpr(jax.grad(fun))(1.0)
    assert jaxpr.eqns
    assert {str(request.requested_device(eqn)) for eqn in jaxpr.eqns} == {"/job:ps/task:3"}


def test_files_of_libraries_that_jax_leaves_out_of_tracebacks_are_known():
    import flax.linen  # noqa: PLC0415 - it says which files are its own when it is imported

    assert any(flax.linen.module.__file__.startswith(path) for path in internals.hidden_files())
    assert internals.n_hidden() == len(internals.hidden_files())
    assert not any(__file__.startswith(path) for path in internals.hidden_files())


def test_a_program_without_refs_computes_the_same_with_the_lines_and_requests_of_before():
    def add(x):
        ref = jax.new_ref(x)
        with tf.device("/job:ps/task:3"):
            ref[...] += 1
        return ref[...] * 2

    for function in (add, jax.jit(add)):
        program = jax.make_jaxpr(function)(1.0)
        assert any(map(internals.uses_refs, program.eqns))
        pure = internals.without_refs(program)
        assert not any(map(internals.uses_refs, pure.eqns))
        assert not pure.effects
        assert jax.core.eval_jaxpr(pure.jaxpr, pure.consts, 1.0) == [4.0]
    pure = internals.without_refs(jax.make_jaxpr(add)(1.0))
    devices = {eqn.primitive.name: str(request.requested_device(eqn)) for eqn in pure.eqns}
    assert devices["add"] == "/job:ps/task:3"
    assert not devices["mul"]
    lines = {eqn.primitive.name: origin.line_of(eqn) for eqn in pure.eqns}
    assert all(f"{__file__}:" in line for line in lines.values())
    outer = jax.new_ref(1.0)
    given = jax.make_jaxpr(lambda x: outer[...] + x)(1.0)
    assert internals.without_refs(given) is given
    (print_,) = jax.make_jaxpr(lambda x: jax.debug.print("{}", x))(1.0).eqns
    assert not internals.uses_refs(print_)


@pytest.mark.parametrize(
    "dtype", ["float32", "bool", "uint8", "bfloat16", "float8_e4m3fn", "complex64"]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (5, 7)])
def test_an_array_reaches_the_device_as_by_device_put(dtype, shape):
    value = np.ones(shape, jnp.dtype(dtype))
    ours, jaxs = internals.to_device(value), jax.device_put(value)
    assert ours.aval == jaxs.aval
    assert ours.sharding == jaxs.sharding
    assert ours.committed is jaxs.committed is False
    np.testing.assert_array_equal(np.asarray(ours), value)


def test_an_array_says_whether_it_is_committed():
    device = jax.local_devices()[-1]
    for array in (jnp.ones(3), jax.device_put(jnp.ones(3), device)):
        assert internals.is_committed(array) is array.committed


def test_an_array_reaches_the_default_device():
    cpu = jax.local_devices()[-1]
    for default in (cpu, "cpu"):
        with jax.default_device(default):
            ours, jaxs = internals.to_device(np.ones(3)), jax.device_put(np.ones(3))
        assert ours.devices() == jaxs.devices()


def test_an_array_of_64_bits_keeps_them_whatever_the_settings_are():
    value = np.full(3, 2.0**60 + 1)
    assert not jax.config.jax_enable_x64
    array = internals.to_device(value)
    assert array.dtype == array.aval.dtype == np.float64
    np.testing.assert_array_equal(np.asarray(array), value)


def test_host_memory_that_a_freed_array_has_shared_is_released():
    owner = aligned_buffer(1 << 20)
    alive = weakref.ref(owner.base)
    array = internals.to_device(owner)
    assert array.unsafe_buffer_pointer() == owner.ctypes.data
    del owner, array
    internals.release_host_memory()
    assert alive() is None


def test_a_primitive_asks_a_class_that_is_registered_for_its_array():
    class Held:
        def __jax_array__(self):
            return jnp.float32(0.0)

    with pytest.raises((TypeError, ValueError)):
        jax.lax.exp(Held())
    internals.convert_by_jax_array(Held)
    assert jax.lax.exp(Held()) == 1.0


def test_functions_of_lapack_are_found():
    internals.load_lapack()
    assert "scipy.linalg.cython_lapack" in sys.modules
