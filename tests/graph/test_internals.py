"""Checks each private name of JAX that jflow touches against the JAX that is installed."""

import threading

import jax
import jax.numpy as jnp
import pytest

import jflow as tf
from jflow.graph import internals, request


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
    assert {str(request.asked_for(eqn)) for eqn in jaxpr.eqns} == {"/job:ps/task:3"}
