"""Divides a machine's GPUs, their memory, threads and cores among the tasks of a cluster."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jflow.base.cluster import Task
from jflow.errors import UnimplementedError

_WITHOUT_GPU = "ps"
"""The job whose tasks get no GPU, since they keep variables and compute little."""
_PLATFORMS, _VISIBLE, _THREADS = "JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES", "NPROC"
_CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_OWN_POLICY = (_FRACTION, "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR")
"""Variables by which the user determines how processes share a GPU's memory."""
_JAX_FRACTION = 0.75
"""The fraction of a GPU's memory that JAX allocates by default."""
_DEVICES = Path("/dev")

TUNABLES = "GLIBC_TUNABLES"
HUGE_PAGES = "glibc.malloc.hugetlb=1"
"""Makes glibc request huge pages for large allocations: XLA's results are new memory, whose page
faults may take longer than the computation (decision 0077)."""


def machine_gpus(environ: Mapping[str, str], devices: Path = _DEVICES) -> list[str]:
    """Returns the GPUs that processes with this environment use, by their names in CUDA.

    These are the ones in CUDA_VISIBLE_DEVICES or, without it, all of NVIDIA's in the machine; none
    if JAX_PLATFORMS lists platforms and CUDA is not among them.
    """
    platforms = environ.get(_PLATFORMS, "")
    if platforms and not {"cuda", "gpu"} & {name.strip() for name in platforms.split(",")}:
        return []
    if (visible := environ.get(_VISIBLE)) is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    numbers = (re.fullmatch(r"nvidia(\d+)", path.name) for path in devices.glob("nvidia*"))
    return [str(number) for number in sorted(int(match[1]) for match in numbers if match)]


@dataclass(frozen=True)
class TaskResources:
    """The share of one machine that each task of a cluster gets.

    Attributes:
      threads: with how many threads XLA computes on the CPU in each task; if None, as many as the
        task has cores.
      visible_devices: the NVIDIA GPUs that the workers divide, by number or name, as in
        CUDA_VISIBLE_DEVICES; if None, those that this process may use.
      gpu_memory_fraction: the part of the memory of each of its GPUs that a worker takes when it
        starts; if None, workers that share a GPU divide the 0.75 that JAX takes for one process.
      cpu_devices: as how many devices each task uses the CPU; more than one make meshes possible
        where there is no accelerator. If None, as many as JAX_NUM_CPU_DEVICES says, else one.

    Raises:
      ValueError: if there is not at least one thread or CPU device, or the fraction is not above 0
        and at most 1.
    """

    threads: int | None = None
    visible_devices: Sequence[int | str] | None = None
    gpu_memory_fraction: float | None = None
    cpu_devices: int | None = None

    def __post_init__(self) -> None:
        if self.cpu_devices is not None and self.cpu_devices < 1:
            raise ValueError(
                f"a task needs at least one CPU device, got cpu_devices={self.cpu_devices!r}"
            )
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"a task needs at least one thread, got threads={self.threads!r}")
        if self.gpu_memory_fraction is not None and not 0 < self.gpu_memory_fraction <= 1:
            raise ValueError(
                "gpu_memory_fraction must be above 0 and at most 1, got "
                f"{self.gpu_memory_fraction!r}"
            )

    @property
    def of_all(self) -> dict[str, str]:
        """The environment variables that are the same for all tasks."""
        numbers = {_THREADS: self.threads, _CPU_DEVICES: self.cpu_devices}
        return {name: str(number) for name, number in numbers.items() if number is not None}


def divide_machine(
    resources: TaskResources, tasks: Sequence[Task], environ: Mapping[str, str]
) -> dict[Task, dict[str, str]]:
    """Returns the environment variables that divide a machine among tasks.

    Where there are GPUs, tasks of the job "ps" run on the CPU and the others divide the GPUs: each
    gets several where there are more GPUs than tasks, and one that it may share where there are
    fewer. What the environment says of the memory of GPUs stays, unless a fraction is given.

    Args:
      resources: what each task gets.
      tasks: the tasks.
      environ: the environment that the variables are added to.
    """
    visible, fraction = resources.visible_devices, resources.gpu_memory_fraction
    gpus = machine_gpus(environ) if visible is None else [str(gpu) for gpu in visible]
    gpus_by_task = _gpus_by_task([task for task in tasks if task.job != _WITHOUT_GPU], gpus)
    n_users = Counter(gpu for names in gpus_by_task.values() for gpu in names)
    environments = {}
    for task in tasks:
        variables = resources.of_all
        if names := gpus_by_task.get(task):
            variables[_VISIBLE] = ",".join(names)
            n_sharing = max(n_users[gpu] for gpu in names)
            if fraction is not None:
                variables[_FRACTION] = str(fraction)
            elif n_sharing > 1 and not any(name in environ for name in _OWN_POLICY):
                variables[_FRACTION] = f"{_JAX_FRACTION / n_sharing:.4f}"
        elif gpus or visible is not None:
            variables[_PLATFORMS] = "cpu"
        environments[task] = variables
    return environments


def _gpus_by_task(tasks: Sequence[Task], gpus: Sequence[str]) -> dict[Task, Sequence[str]]:
    """Returns the GPUs of each task."""
    n_tasks, n_gpus = len(tasks), len(gpus)
    if n_tasks > n_gpus:
        return {task: gpus[i % n_gpus : i % n_gpus + 1] for i, task in enumerate(tasks) if gpus}
    return {
        task: gpus[i * n_gpus // n_tasks : (i + 1) * n_gpus // n_tasks]
        for i, task in enumerate(tasks)
    }


def check_cores(cores: Sequence[int]) -> None:
    """Checks that this process can be pinned to the cores.

    Raises:
      UnimplementedError: if the system cannot pin processes.
      ValueError: if this process may not use one of the cores.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise UnimplementedError(f"processes cannot be pinned to cores on {sys.platform}")
    if missing_cores := {*cores} - os.sched_getaffinity(0):
        available = sorted(os.sched_getaffinity(0))
        raise ValueError(
            f"this process may use the cores {available}, but not {sorted(missing_cores)}"
        )


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """A context manager that pins this thread, and so the processes that it starts, to a core.

    A process is pinned before its libraries look how many threads they should have. With None it
    changes nothing.
    """
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
