import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.compiler import lowering
from jflow.plan import xla
from jflow.plan.xla.compile import result_bytes
from jflow.plan.xla.validation import validated
from tests.compiler.lowering.programs import lowered

DEVICES = jax.local_devices(backend="cpu")


def _program():
    x = tf.placeholder("float32", (3,))
    return lowered(tf.numpy.cumsum(x) * 2, inputs=(x,))


def _both(program, device, donated):
    data = lowering.export(program.jaxpr, "cpu").tobytes()
    return [
        *lowering.compile_all([(program, device, donated)]),
        xla.compile_exported(xla.inspected(data), device, donated),
    ]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_program_runs_on_the_device_it_was_compiled_for(number):
    for executable in _both(_program(), DEVICES[number], ()):
        for given in (
            np.float32([1, 2, 3]),
            jax.device_put(np.float32([1, 2, 3]), DEVICES[number]),
        ):
            (found,) = executable(given)
            np.testing.assert_array_equal(found, [2.0, 6.0, 12.0])
            assert found.devices() == {DEVICES[number]}


@pytest.mark.parametrize("function", [lambda x: x * 2, lambda x: [x * 2], lambda x: {"y": x * 2}])
def test_the_size_of_results_is_known_whatever_structure_they_have(function):
    exported = jax.export.export(jax.jit(function), platforms=["cpu"])
    data = exported(jax.ShapeDtypeStruct((3,), np.float32)).serialize()
    executable = xla.compile_exported(xla.inspected(bytes(data)), DEVICES[0], ())
    assert result_bytes(executable) == [12]


def test_a_donated_argument_is_used_up_and_its_memory_used_again():
    for executable in _both(_program(), DEVICES[1], (0,)):
        # A copy, for the first array may be NumPy's own memory.
        given = jnp.copy(jax.device_put(np.float32([1, 2, 3]), DEVICES[1]))
        address = given.unsafe_buffer_pointer()
        (found,) = executable(given)
        assert given.is_deleted()
        assert found.unsafe_buffer_pointer() == address


def test_an_argument_that_is_not_donated_stays():
    for executable in _both(_program(), DEVICES[1], ()):
        given = jax.device_put(np.float32([1, 2, 3]), DEVICES[1])
        executable(given)
        np.testing.assert_array_equal(given, [1.0, 2.0, 3.0])


def test_an_argument_that_the_program_does_not_use_is_taken_all_the_same():
    x, y = tf.placeholder("float32", ()), tf.placeholder("float32", ())
    program = lowered(x * 2, inputs=(x, y))
    for executable in _both(program, DEVICES[0], ()):
        assert executable(np.float32(3), np.float32(9))[0] == 6.0


def test_random_numbers_and_linear_algebra_survive_the_export():
    x = tf.random.normal(tf.random.PRNGKey(0), (3, 3))
    program = lowered(tf.numpy.linalg.inv(x), tf.numpy.linalg.norm(x), tf.numpy.sort(x))
    here, shipped = (executable() for executable in _both(program, DEVICES[0], ()))
    for value, array in zip(shipped, here, strict=True):
        np.testing.assert_array_equal(value, array)
    wanted = jnp.linalg.inv(jax.random.normal(jax.random.PRNGKey(0), (3, 3)))
    np.testing.assert_allclose(here[0], wanted, rtol=1e-4)


@pytest.mark.parametrize("data", [b"", b"rubbish", b"\0" * 1000])
def test_bytes_that_are_no_program_are_an_error(data):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{len(data)} bytes are no"):
        validated(data)


def test_a_damaged_program_is_an_error():
    data = bytearray(lowering.export(_program().jaxpr, "cpu").tobytes())
    for i in range(0, len(data), 7):
        data[i] ^= 0xFF
    with pytest.raises(tf.errors.InvalidArgumentError):
        validated(bytes(data))


def test_a_program_for_another_platform_is_an_error():
    data = lowering.export(_program().jaxpr, "tpu").tobytes()
    with pytest.raises(tf.errors.InvalidArgumentError, match="tpu"):
        xla.compile_exported(validated(data), DEVICES[0], ())
