"""One program on two devices of a process or a cluster: CPUs everywhere, GPUs where they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

PROGRAM = Path(__file__).parent / "programs" / "split.py"
SHARDED = PROGRAM.with_name("sharded.py")
LOCAL = "/job:localhost/task:0"
PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


def _run(
    environment: Mapping[str, str], *arguments: str, program: Path = PROGRAM
) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _check(found: dict[str, Any], first: str, second: str) -> None:
    """Asserts that everything ran where it was to run, and gave what JAX gives."""
    places = found["places"]
    assert (places["w/read"], places["sum"]) == (first, first)
    assert (places["b/read"], places["dot"], places["tanh"]) == (second, second, second)
    # A derivative is beside its forward operation.
    assert {places[name] for name in places if name.startswith("gradients/")} == {first, second}
    assert {first, second} <= set(found["devices"])
    np.testing.assert_allclose(found["losses"], _losses(), rtol=1e-2)


def _losses() -> list[float]:
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)

    def loss(w: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.sum(jnp.tanh(x @ w + b) ** 2)

    w, b = jnp.full((4, 3), 0.5), jnp.ones(3)
    losses = []
    for _ in range(3):
        losses.append(float(loss(w, b)))
        slope_w, slope_b = jax.grad(loss, (0, 1))(w, b)
        w, b = w - 0.1 * slope_w, b - 0.1 * slope_b
    return losses


def test_a_program_is_split_between_cpus_of_a_process() -> None:
    found = _run(os.environ | {"JAX_NUM_CPU_DEVICES": "2"}, "local", "/cpu:0", "/device:CPU:1")
    names = ("CPU:0", "CPU:1", "MESH:0[devices=2]")
    assert found["devices"] == [f"{LOCAL}/device:{name}" for name in names]
    _check(found, f"{LOCAL}/device:CPU:0", f"{LOCAL}/device:CPU:1")


def test_a_program_is_split_between_cpus_of_a_cluster() -> None:
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "2"}
    found = _run(environment, "cluster", "/job:ps/device:CPU:1", "/job:worker/cpu:1")
    names = ("CPU:0", "CPU:1", "MESH:0[devices=2]")
    assert found["devices"] == [f"{task}/device:{name}" for task in (WORKER, PS) for name in names]
    _check(found, f"{PS}/device:CPU:1", f"{WORKER}/device:CPU:1")


@pytest.mark.gpu
def test_a_program_is_split_between_the_cpu_and_the_gpu_of_a_process(gpu: dict[str, str]) -> None:
    found = _run(gpu, "local", "/cpu:0", "/gpu:0")
    assert found["devices"][0] == f"{LOCAL}/device:GPU:0"
    _check(found, f"{LOCAL}/device:CPU:0", f"{LOCAL}/device:GPU:0")


@pytest.mark.gpu
def test_a_variable_on_the_gpu_is_used_from_the_cpu(gpu: dict[str, str]) -> None:
    found = _run(gpu | {"JAX_NUM_CPU_DEVICES": "2"}, "local", "/gpu:0", "/cpu:1")
    _check(found, f"{LOCAL}/device:GPU:0", f"{LOCAL}/device:CPU:1")


@pytest.mark.gpu
def test_a_program_is_split_between_cpu_and_gpu_of_two_tasks(gpu: dict[str, str]) -> None:
    found = _run(gpu, "cluster", "/job:ps/cpu:0", "/job:worker/gpu:0")
    _check(found, f"{PS}/device:CPU:0", f"{WORKER}/device:GPU:0")


@pytest.mark.gpu
def test_two_workers_share_one_gpu_and_the_ps_has_none(gpu: dict[str, str]) -> None:
    environment = {name: text for name, text in gpu.items() if "CLIENT" not in name}
    found = _run(environment, "shared", "/job:worker/task:0/gpu:0", "/job:worker/task:1/gpu:0")
    workers = [f"/job:worker/task:{i}" for i in (0, 1)]
    assert {*found["devices"]} >= {f"{task}/device:GPU:0" for task in workers}
    assert f"{PS}/device:GPU:0" not in found["devices"]
    _check(found, *(f"{task}/device:GPU:0" for task in workers))


@pytest.mark.gpu
def test_what_is_lowered_otherwise_for_a_gpu_runs_on_one_of_another_task(
    gpu: dict[str, str],
) -> None:
    program = PROGRAM.with_name("cumulative.py")
    done = subprocess.run(
        [sys.executable, str(program), "/job:worker/gpu:0"],
        env=gpu,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _check_sharded(environment: Mapping[str, str], where: str) -> list[str]:
    """Asserts that a model on a mesh trains as in JAX; returns the devices that there are."""
    found = _run(environment, where, program=SHARDED)
    task, reader = (LOCAL, LOCAL) if where == "local" else (WORKER, PS)
    assert {f"{task}/device:MESH:0[model=2]", f"{reader}/device:CPU:0"} <= {*found["places"]}
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    w = jnp.linspace(0, 1, 32, dtype=np.float32).reshape(4, 8)
    momentum = jnp.zeros_like(w)
    for loss in found["losses"]:
        wanted, slope = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
        np.testing.assert_allclose(loss, wanted, rtol=1e-2)
        momentum = 0.9 * momentum + slope
        w = w - 0.1 * momentum
    assert [*found["losses"]] == sorted(found["losses"], reverse=True)
    return list(found["devices"])


@pytest.mark.parametrize("where", ["local", "cluster"])
def test_a_model_is_sharded_over_cpus(where: str) -> None:
    _check_sharded(os.environ | {"JAX_NUM_CPU_DEVICES": "2"}, where)


@pytest.mark.gpu
@pytest.mark.parametrize("where", ["local", "cluster"])
def test_a_model_is_sharded_over_gpus(where: str, gpu: dict[str, str]) -> None:
    counted = "import jax; print(len(jax.devices('gpu')))"
    counting = [sys.executable, "-c", counted]
    if int(subprocess.check_output(counting, env=gpu, text=True)) < 2:
        pytest.skip("this machine has one GPU, and a mesh needs two")
    # The only CPU of each task cannot be the mesh.
    devices = _check_sharded(gpu, where)
    assert any("GPU:1" in name for name in devices)
