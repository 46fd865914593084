"""`AbandonedSteps`: steps without a caller, of which a device of the task still runs a program.

A program cannot be interrupted. A step is *abandoned* if it was cancelled or has failed meanwhile:
its program goes on, and keeps its place on the device. A device is *stuck* once it has run a
program for a certain time after its step was abandoned; it takes no steps until the program ends.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import jax

from jflow.base.deadline.clock import now
from jflow.base.logs import event
from jflow.errors import UnavailableError
from jflow.plan.xla.hardware import DeviceOrMesh, devices_of
from jflow.state.moves import StateId, changes_of
from jflow.state.watch import StepStatus, busy_text, client_text
from jflow.task.execution.linked import LinkedPlan
from jflow.task.worker.device_pool import DevicePool
from jflow.task.worker.registered import RegisteredPlans

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class AbandonedStep:
    """A step that was abandoned.

    Attributes:
      began, at: when it began on this task, and when it was abandoned, by `now`.
      registered: what it ran.
      devices: the devices that run programs of it.
      where: their names.
    """

    step: int
    began: float
    at: float
    registered: RegisteredPlans
    devices: frozenset[jax.Device]
    where: str

    def status(self) -> StepStatus:
        """Returns its status for watchers."""
        present = now()
        return self.registered.status(
            self.step, max(present - self.began, 0.0), max(present - self.at, 0.0)
        )


class AbandonedSteps:
    """The abandoned steps of a task, and the devices that they make stuck. On the event loop only.

    Args:
      devices: runs the programs.

    Attributes:
      steps: the abandoned steps, by step.
      stuck: the devices that take no steps, each with the step that made it stuck.
      limit_s: for how long a program may run after its step was abandoned before its device is
        stuck, in seconds.
      on_stuck: called when a device becomes stuck, with the reason.
    """

    def __init__(self, devices: DevicePool) -> None:
        self.steps: dict[int, AbandonedStep] = {}
        self.stuck: dict[jax.Device, AbandonedStep] = {}
        self.limit_s = math.inf
        self.on_stuck: Callable[[str], object] | None = None
        self._devices = devices
        devices.ended = self._end

    def add(self, step: int, began: float, registered: RegisteredPlans) -> None:
        """Records that a step has no caller any more, if a device runs a program of it."""
        running = self._devices.running(step)
        if not running or step in self.steps:
            return
        devices = frozenset(device for one in running for device in devices_of(one))
        plans = (one for one in registered.plans if not devices.isdisjoint(devices_of(one.device)))
        where = ", ".join(str(one.plan.device) for one in plans)
        added = AbandonedStep(step, began, now(), registered, devices, where)
        self.steps[step] = added
        self._log("step_abandoned", added)
        if self.limit_s < math.inf:
            asyncio.get_running_loop().call_later(self.limit_s, self._check, added)

    def on(self, device: jax.Device) -> list[AbandonedStep]:
        """Returns the abandoned steps that a device is busy with, in the order of their ends."""
        return [one for one in self.steps.values() if device in one.devices]

    def written(self) -> Collection[StateId]:
        """Returns the state that abandoned steps may be writing."""
        plans = [one.plan for step in self.steps.values() for one in step.registered.plans]
        return frozenset[StateId]().union(*changes_of(plans))

    def describe(self, device: DeviceOrMesh) -> str:
        """Says how many programs of a device are abandoned, and which is the first; "" if none."""
        found = {one.step: one for each in devices_of(device) for one in self.on(each)}
        if not found:
            return ""
        first = min(found.values(), key=lambda one: one.at)
        return f"{len(found)} of them abandoned (the first: {busy_text(first.status())})"

    def refuse(self, plans: Iterable[LinkedPlan]) -> None:
        """Raises UnavailableError if plans are for a device that is stuck."""
        for linked in plans:
            for device in devices_of(linked.device):
                if device in self.stuck:
                    raise self._refusal(str(linked.plan.device), self.stuck[device])

    def _refusal(self, device: str, by: AbandonedStep) -> UnavailableError:
        task = device.partition("/device:")[0]
        return UnavailableError(
            f"{device} is stuck and takes no steps: it has been {busy_text(by.status())}; a "
            f"program cannot be interrupted. Use another device, wait until it ends, or start "
            f"{task} again",
            task=task,
        )

    def _check(self, added: AbandonedStep) -> None:
        """Makes the devices of an abandoned step stuck, if its program still runs."""
        if self.steps.get(added.step) is not added:
            return
        fresh = [device for device in added.devices if device not in self.stuck]
        self.stuck.update(dict.fromkeys(fresh, added))
        if not fresh:
            return
        self._log("device_stuck", added, logging.WARNING)
        self._devices.fail_waits(fresh, lambda: self._refusal(added.where, added))
        if self.on_stuck is not None:
            self.on_stuck(f"{added.where} is stuck: it has been {busy_text(added.status())}")

    def _end(self, step: int) -> None:
        """Forgets an abandoned step, whose programs have ended."""
        ended = self.steps.pop(step, None)
        if ended is None:
            return
        self._log("abandoned_step_ended", ended)
        for device in [device for device, by in self.stuck.items() if by is ended]:
            del self.stuck[device]
            if others := [one for one in self.on(device) if now() - one.at >= self.limit_s]:
                self.stuck[device] = others[0]

    def _log(self, name: str, one: AbandonedStep, level: int = logging.INFO) -> None:
        status = one.status()
        event(
            _LOG,
            level,
            name,
            step=status.step,
            client=client_text(status),
            devices=one.where,
            age_s=round(status.age_s, 3),
            abandoned_s=round(status.abandoned_s or 0.0, 3),
        )
