"""Options of sessions that are assigned, as the first lines of scripts for TensorFlow do."""

from __future__ import annotations

import logging
import math

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.client.runtime import local


def test_options_are_assigned_as_scripts_for_tensorflow_do() -> None:
    config = tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.3))
    config.allow_soft_placement = True
    config.log_device_placement = False
    config.gpu_options.allow_growth = True
    config.intra_op_parallelism_threads = np.int32(2)
    config.inter_op_parallelism_threads = -1
    config.operation_timeout_in_ms = 1.5 * 40_000  # type: ignore[assignment]
    config.device_count["GPU"] = 0
    config.device_filters.append("/job:ps")
    config.device_filters.extend(["/job:worker/task:1"])
    config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    config.gpu_options.CopyFrom(tf.GPUOptions(allow_growth=True, visible_device_list="0,1"))
    assert repr(config) == (
        "ConfigProto(operation_timeout_in_ms=60000, allow_soft_placement=True, "
        "device_filters=['/job:ps', '/job:worker/task:1'], "
        "device_count={'GPU': 0}, intra_op_parallelism_threads=2, inter_op_parallelism_threads=-1, "
        "gpu_options=GPUOptions(allow_growth=True, visible_device_list='0,1'), graph_options="
        "GraphOptions(optimizer_options=OptimizerOptions(global_jit_level=1)))"
    )
    with tf.device("/gpu:0"):
        x = tf.constant(1.0) + 1
    with tf.Session(config=config) as session:
        assert session.run(x) == 2.0
    options = tf.RunOptions()
    options.trace_level = tf.RunOptions.FULL_TRACE
    assert options == tf.RunOptions(trace_level=3)


def test_sessions_and_connections_have_the_options_of_when_they_were_made() -> None:
    config = tf.ConfigProto(allow_soft_placement=True)
    with tf.device("/gpu:0"):
        x = tf.constant(1.0) + 1
    with tf.Session(config=config) as soft:
        config.allow_soft_placement = False
        assert soft.run(x) == 2.0
    config.allow_soft_placement = True
    with tf.connect(config=config):
        config.allow_soft_placement = False

        @tf.function
        def on_gpu(x: jax.Array) -> jax.Array:
            with tf.device("/gpu:0"):
                return x + 1

        assert on_gpu(1.0) == 2.0
    with tf.Session(config=config) as hard, pytest.raises(tf.errors.InvalidArgumentError):
        hard.run(x)


def test_a_copy_shares_nothing_that_can_be_assigned() -> None:
    config = tf.ConfigProto(device_filters=["/job:ps"])
    copied = config.copy()
    assert copied == config
    copied.gpu_options.allow_growth = True
    copied.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    copied.device_count["CPU"] = 1
    copied.device_filters.clear()
    assert config == tf.ConfigProto(device_filters=["/job:ps"])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("allow_soft_placement", "yes", "ConfigProto.allow_soft_placement must be True or False"),
        ("operation_timeout_in_ms", 0.5, "ConfigProto.operation_timeout_in_ms must be an int"),
        ("intra_op_parallelism_threads", "4", "must be an int, got '4'"),
        ("gpu_options", {"allow_growth": True}, "ConfigProto.gpu_options must be a GPUOptions"),
        ("device_count", 1, r"must be a dict such as {'GPU': 0}, got 1"),
        ("device_count", {"GPU": "0"}, r"device_count\['GPU'\] must be an int"),
        ("device_filters", "/job:ps", "expected a list of device filters"),
    ],
)
def test_an_option_of_another_type_is_refused_when_it_is_assigned(
    name: str, value: object, words: str
) -> None:
    config = tf.ConfigProto()
    with pytest.raises(TypeError, match=words):
        setattr(config, name, value)
    with pytest.raises(TypeError, match=words):
        tf.ConfigProto(**{name: value})  # type: ignore[arg-type]
    assert config == tf.ConfigProto()


def test_a_value_that_no_option_can_have_is_refused_when_it_is_assigned() -> None:
    config, bad = tf.ConfigProto(), tf.errors.InvalidArgumentError
    with pytest.raises(bad, match="operation_timeout_in_ms must not be negative, got -1"):
        config.operation_timeout_in_ms = -1
    with pytest.raises(bad, match="'moon' is not a device name"):
        config.device_filters = ["moon"]
    with pytest.raises(bad, match="types of devices, such as 'CPU' or 'GPU', got 'gpu'"):
        config.device_count = {"gpu": 0}
    with pytest.raises(bad, match=r"device_count\['CPU'\] must be at least 1, got 0"):
        config.device_count = {"CPU": 0}
    with pytest.raises(bad, match="must be finite"):
        config.gpu_options.per_process_gpu_memory_fraction = math.nan
    with pytest.raises(bad, match="numbers of GPUs, such as '0,2', got 'GPU:0'"):
        config.gpu_options.visible_device_list = "GPU:0"
    with pytest.raises(bad, match=r"global_jit_level must be one of \[-1, 0, 1, 2\], got 7"):
        config.graph_options.optimizer_options.global_jit_level = 7
    with pytest.raises(bad, match="trace_level, got 4"):
        tf.RunOptions().trace_level = 4
    with pytest.raises(bad, match=r"RunOptions.timeout_in_ms must not be negative"):
        tf.RunOptions(timeout_in_ms=-5)


def test_an_option_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(AttributeError, match=r"GPUOptions has no option 'allow_groth'; it has .*"):
        tf.ConfigProto().gpu_options.allow_groth = True
    with pytest.raises(TypeError, match="expected a GPUOptions, got ConfigProto"):
        tf.GPUOptions().CopyFrom(tf.ConfigProto())  # type: ignore[arg-type]


def test_what_is_put_into_a_list_of_options_is_checked_by_the_session() -> None:
    config = tf.ConfigProto()
    config.device_filters.append("moon")  # type: ignore[attr-defined]
    with pytest.raises(tf.errors.InvalidArgumentError, match="'moon' is not a device name"):
        tf.Session(config=config)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'moon' is not a device name"):
        tf.connect(config=config)


def test_a_session_and_a_server_have_at_most_so_many_devices_of_a_type() -> None:
    config = tf.ConfigProto(device_count={"CPU": 1, "GPU": 0})
    with tf.Session() as all_devices:
        n_devices = len(all_devices.list_devices())
    assert n_devices > 1
    with tf.Session(config=config) as session:
        assert [one.device_type for one in session.list_devices()] == ["CPU"]
    with (
        tf.train.Server.create_local_server(config) as server,
        tf.Session(server.target) as session,
    ):
        assert [one.device_type for one in session.list_devices()] == ["CPU"]
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": n_devices + 1})) as session:
        assert len(session.list_devices()) == n_devices


def test_an_option_that_jax_takes_from_the_environment_is_named_once_where_there_are_gpus(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local, "_warned", set())
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.3")
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    options = tf.GPUOptions(allow_growth=True, per_process_gpu_memory_fraction=0.3)
    config = tf.ConfigProto(gpu_options=options)
    with caplog.at_level(logging.WARNING):
        tf.Session(config=config).close()
        for device_types in ({"CPU"}, {"GPU", "CPU"}, {"GPU", "CPU"}):
            local.warn_of_process_options(config, device_types)
    (record,) = caplog.records
    assert "gpu_options.allow_growth has no effect" in record.getMessage()
    assert "XLA_PYTHON_CLIENT_PREALLOCATE=false" in record.getMessage()
