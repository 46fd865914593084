import importlib.util
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
from jflow.compiler import lowering
from jflow.plan import xla
from tests.compiler.lowering import one_program
from tests.compiler.lowering.programs import digest, lowered

CPU = jax.local_devices(backend="cpu")[0]
SOURCE = Path(one_program.__file__)


def _module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _digest(build, *args):
    with tf.Graph().as_default():
        return digest(*build(*args))


def test_the_same_program_from_another_file_has_the_same_digest(tmp_path):
    copy = tmp_path / "somebody_elses_program.py"
    copy.write_text("\n" * 50 + SOURCE.read_text())
    assert _digest(_module(copy).build) == _digest(one_program.build)


@pytest.mark.parametrize("device", ["/cpu:0", "/cpu:2", "/job:worker/task:7/gpu:1"])
def test_the_same_program_for_another_device_has_the_same_digest(device):
    def pinned():
        with tf.device(device):
            return one_program.build()

    assert _digest(pinned) == _digest(one_program.build)


def test_how_random_bits_are_made_changes_a_digest_and_a_device_beside_it_does_not():
    def bits(is_partitionable, device):
        with jax.threefry_partitionable(is_partitionable), tf.device(device):
            return (tf.random.bits(tf.constant(jax.random.PRNGKey(0)), (3,)),)

    digests = {
        setting: {_digest(bits, setting, device) for device in ("", "/cpu:2", "/job:ps/task:0")}
        for setting in (True, False)
    }
    assert [len(found) for found in digests.values()] == [1, 1]
    assert digests[True] != digests[False]


def test_the_same_program_in_another_process_has_the_same_digest():
    program = (
        "import jax; jax.config.update('jax_num_cpu_devices', 3)\n"
        "from tests.compiler.lowering import one_program, programs\n"
        "print(programs.digest(*one_program.build()))"
    )
    root = Path(__file__).parents[3]
    environ = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == _digest(one_program.build)


def test_names_of_operations_and_scopes_do_not_change_a_digest():
    x = [1.0, 2.0]

    def plain():
        return (tf.nn.softmax(tf.constant(x)),)

    def named():
        with tf.name_scope("scope"), jax.named_scope("other"):
            return (tf.nn.softmax(tf.constant(x, name="x"), name="probabilities"),)

    assert _digest(named) == _digest(plain)


def test_operations_before_and_around_a_program_do_not_change_its_digest():
    def crowded():
        tf.constant(3.0) + tf.Variable(4.0)
        tensors = one_program.build()
        tensors[0] * 2
        return tensors

    assert _digest(crowded) == _digest(one_program.build)


def test_one_changed_constant_changes_the_digest():
    assert _digest(one_program.build, 2.5) != _digest(one_program.build)
    digests = {_digest(lambda value=value: (tf.constant(value) * 2,)) for value in (0.0, -0.0, 1.0)}
    assert len(digests) == 3


@pytest.mark.parametrize(
    "other",
    [
        tf.numpy.cos,
        lambda x: tf.numpy.sin(x) * 1,
        lambda x: tf.numpy.sin(tf.numpy.astype(x, "float16")),
        lambda x: tf.numpy.sin(x[:1]),
    ],
)
def test_another_computation_has_another_digest(other):
    def build(fun):
        x = tf.placeholder("float32", (2,))
        return digest(fun(x), inputs=(x,))

    assert build(other) != build(lambda x: tf.numpy.sin(x))  # noqa: PLW0108 - alike


def test_large_constants_are_not_in_the_program_and_have_digests_of_their_own():
    def build(fill):
        return lowered(tf.numpy.sum(tf.constant(np.full(100_000, fill, np.float32))))

    one, two = build(1.0), build(2.0)
    programs = [lowering.export(program.jaxpr, "cpu") for program in (one, two)]
    assert xla.digest_of(programs[0]) == xla.digest_of(programs[1])
    assert programs[0].nbytes < 5_000
    (first,), (second,) = one.constants, two.constants
    assert xla.digest_of(first) != xla.digest_of(second)


def test_a_digest_names_type_shape_and_content():
    zeros = np.zeros(4, np.float32)
    different = [zeros, zeros.reshape(2, 2), zeros.astype(np.int32), zeros + 1, zeros[:3]]
    assert len({xla.digest_of(array) for array in different}) == len(different)
    matrix = np.arange(6.0).reshape(2, 3)
    assert xla.digest_of(matrix.T) == xla.digest_of(matrix.T.copy())


def test_a_digest_can_be_taken_of_every_kind_of_array():
    for array in (np.float32(3), np.zeros((0, 3)), jnp.ones(3, jnp.bfloat16), np.array(True)):
        assert len(xla.digest_of(np.asarray(array))) == 64


def test_no_file_name_and_no_placement_is_in_the_bytes():
    with tf.device("/job:somewhere/task:3"):
        tensors = one_program.build()
    data = lowering.export(lowered(*tensors).jaxpr, "cpu").tobytes()
    for telling in (b".py", b"somewhere", b"jflow_", b"says nothing", str(SOURCE.parent).encode()):
        assert telling not in data


def test_an_exported_program_gives_what_it_gave_here():
    program = lowered(*one_program.build())
    (executable,) = lowering.compile_all([(program, CPU, ())])
    wanted = executable(*program.constants)
    data = lowering.export(program.jaxpr, "cpu").tobytes()
    found = xla.compile_exported(xla.inspected(data), CPU, ())(*program.constants)
    for value, array in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(value, array)


def test_exporting_leaves_the_program_as_it_was():
    program = lowered(*one_program.build())
    before = str(program.jaxpr)
    files = [eqn.source_info.traceback is None for eqn in program.jaxpr.eqns]
    lowering.export(program.jaxpr, "cpu")
    assert str(program.jaxpr) == before
    assert [eqn.source_info.traceback is None for eqn in program.jaxpr.eqns] == files


def test_a_program_can_be_exported_for_a_platform_that_is_not_here():
    program = lowered(tf.numpy.sin(tf.constant([1.0])))
    data = lowering.export(program.jaxpr, "cuda")
    assert jax.export.deserialize(bytearray(data.tobytes())).platforms == ("cuda",)


def test_the_platform_of_a_cpu_is_cpu():
    assert xla.export_platform(CPU) == "cpu"
