"""How tasks on one machine share its GPUs, their memory and the threads of its cores."""

from __future__ import annotations

import json
import platform
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import ClassVar

import hypothesis.strategies as st
import psutil
import pytest
from hypothesis import given

import jflow as tf
from jflow.base.cluster import Task
from jflow.launch.resources import TaskResources, divide_machine, machine_gpus

VISIBLE, FRACTION = "CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_MEM_FRACTION"
CPU_ONLY = {"JAX_PLATFORMS": "cpu"}


def tasks(n_ps: int, n_workers: int) -> list[Task]:
    return [Task("ps", i) for i in range(n_ps)] + [Task("worker", i) for i in range(n_workers)]


@given(st.integers(0, 3), st.integers(0, 9), st.integers(1, 9))
def test_workers_divide_the_gpus_and_their_memory_and_ps_have_none(
    n_ps: int, n_workers: int, n_gpus: int
) -> None:
    names = [f"GPU-{i}" for i in range(n_gpus)]
    found = divide_machine(TaskResources(visible_devices=names), tasks(n_ps, n_workers), {})
    parts: dict[str, float] = defaultdict(float)
    n_users: Counter[str] = Counter()
    for task, variables in found.items():
        if task.job == "ps":
            assert variables == CPU_ONLY
            continue
        own = variables[VISIBLE].split(",")
        n_users.update(own)
        for gpu in own:
            parts[gpu] += float(variables.get(FRACTION, 0.75))
    assert not n_workers or max(n_users.values()) - min(n_users.values()) <= 1
    assert set(n_users) == (set(names) if n_workers else set())
    assert all(0.74 < part <= 0.751 for part in parts.values())


def test_what_the_user_says_of_the_memory_of_gpus_stays() -> None:
    pair = tasks(0, 2)
    for name in (FRACTION, "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR"):
        found = divide_machine(TaskResources(visible_devices=[0]), pair, {name: "of the user"})
        assert list(found.values()) == [{VISIBLE: "0"}] * 2
    third = TaskResources(visible_devices=[0], gpu_memory_fraction=0.3)
    found = divide_machine(third, pair, {FRACTION: "0.9"})
    assert list(found.values()) == [{VISIBLE: "0", FRACTION: "0.3"}] * 2


def test_without_gpus_nothing_is_said() -> None:
    assert list(divide_machine(TaskResources(), tasks(1, 1), CPU_ONLY).values()) == [{}, {}]


def test_gpus_that_are_not_to_be_used_are_hidden_from_all() -> None:
    none = TaskResources(visible_devices=[])
    assert list(divide_machine(none, tasks(1, 1), {}).values()) == [CPU_ONLY] * 2


def test_gpus_of_the_machine_are_those_that_cuda_would_use(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert machine_gpus({}, tmp_path) == ["0", "2", "10"]
    assert machine_gpus({"JAX_PLATFORMS": "cuda,cpu"}, tmp_path) == ["0", "2", "10"]
    assert machine_gpus(CPU_ONLY, tmp_path) == []
    assert machine_gpus({VISIBLE: "3, GPU-ab"}, tmp_path) == ["3", "GPU-ab"]
    assert machine_gpus({VISIBLE: ""}, tmp_path) == []


def test_a_part_of_memory_that_is_none_and_no_threads_are_refused() -> None:
    for part in (0.0, 1.5, -0.1):
        with pytest.raises(ValueError, match=rf"gpu_memory_fraction must be above 0.*{part}"):
            TaskResources(gpu_memory_fraction=part)
    with pytest.raises(ValueError, match="at least one thread, got threads=0"):
        TaskResources(threads=0)
    with pytest.raises(ValueError, match="at least one CPU device, got cpu_devices=0"):
        TaskResources(cpu_devices=0)


def test_a_task_has_as_many_cpu_devices_as_it_was_given() -> None:
    resources = tf.TaskResources(cpu_devices=3)
    with tf.LocalCluster(0, 1, resources=resources) as cluster, tf.Session(cluster.target()) as s:
        cluster.restart("worker")
        kinds = [one.device_type for one in s.list_devices()]
    assert kinds == ["CPU", "CPU", "CPU", "MESH"]


class TellingCluster(tf.LocalCluster):
    """A cluster whose tasks say what they were told."""

    _module: ClassVar[str] = "tests.programs.told_child"


def test_each_task_is_told_its_part_and_again_when_it_is_restarted(tmp_path: Path) -> None:
    def told(job: str) -> list[dict[str, str]]:
        return [json.loads(line) for line in (tmp_path / f"{job}-0.log").read_text().splitlines()]

    resources = TaskResources(threads=3, visible_devices=[1], gpu_memory_fraction=0.25)
    with TellingCluster(1, 1, logs=tmp_path, resources=resources) as cluster:
        cluster.restart("worker")
    ps, worker = told("ps"), told("worker")
    assert ps == [{"NPROC": "3", "platforms": "cpu"}]
    assert len(worker) == 2
    for variables in worker:
        del variables["platforms"]
        assert variables == {"NPROC": "3", VISIBLE: "1", FRACTION: "0.25"}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads have no names here")
def test_a_task_computes_with_as_many_threads_as_it_was_given() -> None:
    def n_threads(pid: int) -> int:
        names = (Path(f"/proc/{pid}/task/{x.id}/comm") for x in psutil.Process(pid).threads())
        return sum("XLAEigen" in name.read_text() for name in names)

    with (
        tf.LocalCluster(0, 1, resources=tf.TaskResources(threads=3)) as cluster,
        tf.Graph().as_default(),
        tf.Session(cluster.target()) as session,
    ):
        x = tf.placeholder(tf.float32, (300, 300))
        session.run(tf.numpy.dot(x, x), {x: [[1.0] * 300] * 300})
        assert n_threads(cluster.pid("worker")) == 3


_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not _ENABLED.exists() or "[never]" in _ENABLED.read_text(),
    reason="the system has no huge pages",
)
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_large_results_of_programs_are_in_huge_pages() -> None:
    def huge_bytes(pid: int) -> int:
        (line,) = re.findall(
            r"AnonHugePages: *(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text()
        )
        return int(line) << 10

    n_bytes = 64 << 20
    with (
        tf.LocalCluster(1, 0) as cluster,
        tf.Graph().as_default(),
        tf.Session(cluster.target("ps")) as session,
    ):
        large = tf.Variable(tf.numpy.zeros((n_bytes >> 2,), tf.float32))
        session.run(large.initializer)
        assert huge_bytes(cluster.pid("ps")) >= n_bytes / 2


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no environment to read here")
def test_tunables_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")
    with tf.LocalCluster(1, 0) as cluster:
        found = Path(f"/proc/{cluster.pid('ps')}/environ").read_bytes()
    assert b"GLIBC_TUNABLES=glibc.malloc.hugetlb=0" in found.split(b"\0")
