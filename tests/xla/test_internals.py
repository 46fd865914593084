"""Checks each private name of JAX that jflow touches against the JAX that is installed."""

import threading

import jax
import jax.numpy as jnp
import pytest

import jflow as tf
from jflow.graph import request
from jflow.xla import internals


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


def test_an_array_that_a_compiled_function_keeps_to_itself_is_no_effect_of_others():
    def add(x):
        ref = jax.new_ref(x)
        ref[...] += 1
        return ref[...]

    (call,) = jax.make_jaxpr(jax.jit(add))(1.0).eqns
    assert call.effects
    assert all(map(internals.is_of_own_array, call.effects))
    (print_,) = jax.make_jaxpr(lambda x: jax.debug.print("{}", x))(1.0).eqns
    assert not any(map(internals.is_of_own_array, print_.effects))
