"""`ReplayPrograms`: links recorded plans to the devices of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax

from jflow.base.cluster import LOCAL_TASK, Device, Task
from jflow.client.run_log.reader import RecordedStep
from jflow.errors import FailedPreconditionError
from jflow.plan import Plan
from jflow.plan.xla import internals
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.state.checkpoint_files import ANYWHERE
from jflow.state.saves import tensor_functions
from jflow.task.execution import local_devices
from jflow.task.execution.devices import DevicesOfTask
from jflow.task.execution.linked import LinkedPlan
from jflow.task.worker.linking import PlanLinker

_FUNCTIONS = tensor_functions(ANYWHERE)


class DevicesOfRun(Mapping[Device, DeviceOrMesh]):
    """The devices of all tasks of a run, each in the place of one of this process.

    Tasks share the devices of this process. Where it has fewer CPU devices than a task had, several
    of the task are one of them, unless a mesh needs them.

    Args:
      plans: the plans of the run.

    Raises:
      FailedPreconditionError: if this process has no such devices, or too few for a mesh.
    """

    def __init__(self, plans: Iterable[Plan]) -> None:
        wanted: dict[Task, set[Device]] = {}
        for plan in plans:
            wanted.setdefault(plan.device.task, set()).add(plan.device)
        n_of_meshes = [_n_of_mesh(one) for devices in wanted.values() for one in devices]
        if max(n_of_meshes, default=0) > 1 and not internals.has_started():
            jax.config.update("jax_num_cpu_devices", max(n_of_meshes))
        here: dict[str, list[jax.Device]] = {}
        for device, own in local_devices(LOCAL_TASK).items():
            here.setdefault(device.type, []).append(own)
        self._by_task = {
            task: DevicesOfTask(dict(_matched(task, devices, here)))
            for task, devices in wanted.items()
        }

    def __getitem__(self, device: Device) -> DeviceOrMesh:
        return self._by_task[device.task][device]

    def __iter__(self) -> Iterator[Device]:
        return (device for devices in self._by_task.values() for device in devices)

    def __len__(self) -> int:
        return sum(map(len, self._by_task.values()))


def _n_of_mesh(device: Device) -> int:
    """Returns how many devices a task has that has this mesh, at least; 0 for a device alone."""
    return (device.index + 1) * device.n_devices if device.axes else 0


def _matched(
    task: Task, wanted: Iterable[Device], here: Mapping[str, Sequence[jax.Device]]
) -> Iterator[tuple[Device, jax.Device]]:
    """Yields the devices of a task, each with one of this process."""
    members = next((kind for kind in here if kind != "CPU"), "CPU")  # as a task has them
    for device in sorted(wanted, key=str):
        kind = members if device.axes else device.type
        own, n_wanted = here.get(kind, ()), _n_of_mesh(device)
        if len(own) < max(n_wanted, 1):
            raise FailedPreconditionError(
                f"the run used {device}, and this process has {len(own)} devices of type {kind}; "
                f"replay it where there are {max(n_wanted, 1)}, or, for CPU devices, after "
                f"jax.config.update('jax_num_cpu_devices', {n_wanted}) at the start of the program",
                task=str(task),
            )
        for index in range(n_wanted) if device.axes else (device.index,):
            yield Device(task, kind, index), own[index % len(own)]


class ReplayPrograms:
    """Compiles and links the plans of recorded steps.

    Args:
      devices: the devices of the run.
    """

    def __init__(self, devices: DevicesOfRun) -> None:
        self._threads = ThreadPoolExecutor(1, "jflow replay")
        self._linker = PlanLinker(LOCAL_TASK, devices, self._threads)
        self._linked: dict[RecordedStep, Sequence[LinkedPlan]] = {}

    def plans_of(self, step: RecordedStep) -> Sequence[LinkedPlan]:
        """Returns the linked plans of a step.

        Raises:
          InvalidArgumentError: if its programs are malformed, or cannot be compiled here.
        """
        if step not in self._linked:
            plans, artifacts = [*map(_in_dataflow_order, step.plans)], step.artifacts()
            self._linker.check(plans, artifacts)
            # On a thread of its own, because a notebook has a loop that runs in this one.
            with ThreadPoolExecutor(1) as thread:
                linking = thread.submit(
                    asyncio.run, self._linker.link(plans, artifacts, _FUNCTIONS)
                )
                self._linked[step] = linking.result()
        return self._linked[step]

    def close(self) -> None:
        """Ends its threads."""
        self._threads.shutdown(wait=False)


def _in_dataflow_order(plan: Plan) -> Plan:
    """Returns a plan whose stages are fibers, each after those that it follows in the run."""
    if plan.after:
        return plan
    return replace(plan, after=tuple((i - 1,) if i else () for i in range(len(plan.stages))))
