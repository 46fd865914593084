import jax
import jax.numpy as jnp

import jflow as tf
from jflow.base.cluster import DeviceSpec
from jflow.compiler.graph import request


def _requested_in(*blocks):
    def traced(x):
        for block in blocks:
            block.__enter__()
        y = jnp.sin(x)
        for block in reversed(blocks):
            block.__exit__(None, None, None)
        return y

    (eqn,) = jax.make_jaxpr(traced)(1.0).eqns
    return request.requested(eqn)


def test_an_equation_outside_of_all_blocks_asks_for_nothing():
    assert _requested_in() == request.Request()
    assert _requested_in().is_empty
    assert _requested_in(tf.device(None)).is_empty


def test_blocks_that_say_the_same_ask_for_the_same():
    """So that what JAX keeps for one of them is good for the other."""
    nested = _requested_in(tf.device("/job:ps"), tf.device(""), tf.device("/task:1/cpu:0"))
    assert nested == _requested_in(tf.device("/job:ps/task:1/cpu:0"))
    assert hash(nested) == hash(_requested_in(tf.device("/job:ps/task:1/cpu:0")))
    choose = "{}".format
    assert _requested_in(tf.device(choose)) == _requested_in(tf.device(choose))
    assert _requested_in(tf.device(choose)) != _requested_in(tf.device("[]".format))


def test_other_metadata_of_the_user_stays():
    x = tf.constant(1.0)
    with (
        jax.experimental.xla_metadata.set_xla_metadata(mine="yes"),
        tf.device("/job:ps"),
        tf.device(lambda _: "/cpu:1"),
    ):
        y = tf.numpy.sin(x)
    assert y.device == "/job:ps/device:CPU:1"
    assert y.op.eqn.ctx.xla_metadata["mine"] == "yes"


def test_the_request_outside_a_block_comes_back():
    with request.device_request_scope(DeviceSpec("ps")):
        with request.empty_request_scope():
            assert _requested_in().is_empty
        assert _requested_in().spec == DeviceSpec("ps")
