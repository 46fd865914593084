"""How much memory the devices of a process have, as JAX, the system or its user says."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from jflow import errors
from jflow.base.cluster import Device, Task
from jflow.task.execution.memory import host_memory, memory_limits, program_limits

TASK = Task("worker", 0)
CPUS = [Device(TASK, "CPU", i) for i in range(2)]
GPU = Device(TASK, "GPU", 0)


def cpu():
    return SimpleNamespace(platform="cpu")


def accelerator(stats):
    return SimpleNamespace(platform="cuda", memory_stats=lambda: stats)


def no_stats():
    raise jax.errors.JaxRuntimeError("UNIMPLEMENTED")


def physical() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_cpu_devices_have_equal_parts_of_what_the_system_allows_and_a_gpu_has_its_own() -> None:
    gpu = accelerator({"bytes_limit": 5_000, "bytes_in_use": 7})
    found = memory_limits({GPU: gpu, CPUS[0]: cpu(), CPUS[1]: cpu()}, {})
    half = host_memory() // 2
    assert found == {GPU: 5_000, CPUS[0]: half, CPUS[1]: half}
    assert 0 < 2 * half <= physical()


def test_an_accelerator_that_does_not_say_has_no_known_limit() -> None:
    silent = SimpleNamespace(platform="tpu", memory_stats=no_stats)
    for device in (accelerator(None), accelerator({}), silent):
        assert memory_limits({GPU: device}, {}) == {GPU: 0}


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("1000", 1000), ("8B", 8), (" 1.5KiB", 1536), ("2GiB", 2**31)]
)
def test_an_environment_variable_comes_before_what_is_found(text, n_bytes) -> None:
    devices = {CPUS[0]: cpu(), GPU: accelerator({"bytes_limit": 5})}
    told = memory_limits(devices, {"JFLOW_DEVICE_MEMORY": text})
    assert told == {CPUS[0]: n_bytes, GPU: n_bytes}


@pytest.mark.parametrize("text", ["much", "-1", "0", "0.1B", "4GB", "1e9", "inf"])
def test_a_variable_that_is_no_size_is_refused(text) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"JFLOW_DEVICE_MEMORY.*GiB, got"):
        memory_limits({CPUS[0]: cpu()}, {"JFLOW_DEVICE_MEMORY": text})


def group(root: Path, line: str, **limits: str) -> Path:
    """The files of Linux about a process in a control group, below `root`."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"9:cpuset:/other\n{line}\n")
    for folder, text in limits.items():
        name = "memory.limit_in_bytes" if folder.startswith("memory") else "memory.max"
        path = root / "sys/fs/cgroup" / folder.replace("__", "/").removeprefix("top") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_the_smallest_control_group_around_a_process_limits_it(tmp_path) -> None:
    outer = group(tmp_path / "outer", "0::/a/b", a="70000", a__b="max")
    assert host_memory(outer) == 70_000
    inner = group(tmp_path / "inner", "0::/a/b", a="max", a__b="60000")
    assert host_memory(inner) == 60_000
    old = group(tmp_path / "old", "4:memory:/x", memory__x="50000", memory=str(2**63 - 4096))
    assert host_memory(old) == 50_000


def test_in_a_container_the_group_is_the_first_one(tmp_path) -> None:
    """Its path is that of the host, of which the container sees nothing."""
    assert host_memory(group(tmp_path, "0::/docker/1f0", top="40000")) == 40_000


def test_without_a_limit_a_process_has_the_memory_of_the_machine(tmp_path) -> None:
    assert host_memory(group(tmp_path / "no limit", "0::/a", a="max")) == physical()
    assert host_memory(tmp_path / "no such files") == physical()


def test_a_program_on_one_cpu_device_can_use_the_memory_of_all() -> None:
    gpu = accelerator({"bytes_limit": 5_000})
    limits = program_limits({GPU: gpu, CPUS[0]: cpu(), CPUS[1]: cpu()})
    assert limits == {GPU: 5_000, CPUS[0]: host_memory(), CPUS[1]: host_memory()}
