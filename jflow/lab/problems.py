"""Placement problems of workloads on clusters that need not exist."""

from __future__ import annotations

from jflow.base.cluster import Device, Task
from jflow.compiler.pipeline import StepRequest, prune_step
from jflow.compiler.placement import Inventory
from jflow.compiler.placement.place import assign
from jflow.compiler.placement.scheduled import ScheduledAssignment
from jflow.compiler.schedule import Problem
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.lab.workloads import WorkloadStep


def simulated_devices(n_devices: int) -> list[Device]:
    """The devices of a cluster with a task for each CPU device, and no job "ps"."""
    return [Device(Task("worker", i), "CPU", 0) for i in range(n_devices)]


def problem_of(step: WorkloadStep, n_devices: int) -> Problem:
    """What a strategy is asked for the training step of a workload.

    It is what a session on the first task of such a cluster asks, so a strategy's answer can be
    simulated for any number of devices without running one.

    Args:
      step: the step; its graph may name the devices of `simulated_devices`.
      n_devices: how many tasks with a CPU device each.

    Raises:
      InvalidArgumentError: if the graph requests a device that is not there.
    """
    devices = {device.task: (device,) for device in simulated_devices(n_devices)}
    inventory = Inventory(Task("worker", 0), tuple(devices), devices)
    ops = prune_step(step.graph, StepRequest((step.train,), (), ()))
    rules = assign(ops, inventory)
    # The strategy is not called: the problem is the same for all of them.
    return ScheduledAssignment(STRATEGIES["single"], rules, inventory.tasks).problem(devices)
