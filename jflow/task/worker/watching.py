"""`RunningSteps`: the steps of a task and what they wait for, as watchers see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from jflow.base.cluster import Device
from jflow.base.deadline.clock import now
from jflow.plan import Recv, stride_of
from jflow.plan.xla.hardware import DeviceOrMesh, first_device
from jflow.state.moves import Gate
from jflow.state.resources import Cell
from jflow.state.watch import DeviceStatus, StatusRequest, StepStatus, WaitStatus, bounded_name
from jflow.task.execution.waiting import waiting_op
from jflow.task.worker.context import WorkerContext
from jflow.task.worker.registered import RegisteredPlans
from jflow.task.worker.waker import Waker

_N_WAITS = 100
"""How many attempts on each resource are examined, from the head of its wait queue on."""
_N_SHOWN = 20
"""How many waits of one step are shown."""


class RunningSteps:
    """The steps that run on a task, and those that were abandoned there.

    What a step waits for is found from the resources, the rendezvous and the devices, so that steps
    record nothing for watchers but when they began. Call it on the event loop only.

    Args:
      context: the context of the task's worker.
      gate: makes steps wait while the state that they use moves.
      devices: the devices of the task.
    """

    def __init__(
        self, context: WorkerContext, gate: Gate, devices: Mapping[Device, DeviceOrMesh]
    ) -> None:
        self._context = context
        self._devices = devices
        self._gate = gate

    @property
    def n_begun(self) -> int:
        """The number of steps that have begun so far."""
        return self._context.rendezvous.n_opened

    def device_status(self, device: Device, memory_bytes: int) -> DeviceStatus:
        """Returns the status of a device of the task, given the memory that it can use."""
        found, abandoned = first_device(self._devices[device]), self._context.abandoned
        steps = abandoned.on(found)
        since = max(now() - steps[0].at, 0.0) if steps else None
        is_stuck = found in abandoned.stuck
        return DeviceStatus(str(device), device.type, memory_bytes, len(steps), since, is_stuck)

    def listed(self, request: StatusRequest) -> tuple[int, tuple[StepStatus, ...]]:
        """Returns the number of steps, and the statuses of a page of them, abandoned ones first."""
        n_steps, page = self._page(request)
        return n_steps, tuple(
            replace(
                registered.status(step, found[0].age_s, found[0].abandoned_s),
                waiting_for=tuple(wait.cause for wait in found if wait.cause),
            )
            for step, registered, found in page
        )

    def list_waits(self, request: StatusRequest) -> tuple[int, tuple[WaitStatus, ...]]:
        """Returns the number of steps, and the waits of a page of them, as `listed`.

        A step that waits for nothing has one entry, without a cause.
        """
        n_steps, page = self._page(request)
        return n_steps, tuple(wait for _, _, found in page for wait in found)

    def _page(
        self, request: StatusRequest
    ) -> tuple[int, list[tuple[int, RegisteredPlans, Sequence[WaitStatus]]]]:
        """Returns the number of steps, and the waits of a page of them, at least one for each step.

        Those that were abandoned come first, then the others, each the oldest first.
        """
        abandoned, present = self._context.abandoned.steps, now()
        started = [
            (at, step, found)
            for step, (at, found) in self._context.started.items()
            if step not in abandoned
        ]
        given_up = [(one.began, step, one.registered) for step, one in abandoned.items()]
        steps = [
            *sorted(given_up, key=lambda one: one[0]),
            *sorted(started, key=lambda one: one[0]),
        ]
        page = steps[request.first : request.first + request.limit]
        attempts = self._attempts() if page else {}
        found: list[tuple[int, RegisteredPlans, Sequence[WaitStatus]]] = []
        for at, step, registered in page:
            base = WaitStatus(f"{step:x}", registered.handle, max(present - at, 0.0))
            if step in abandoned:
                since = max(present - abandoned[step].at, 0.0)
                found.append((step, registered, [replace(base, abandoned_s=since)]))
                continue
            fields = (
                *attempts.get(step, ()),
                *self._values(step, registered),
                *self._busy_devices(step, registered),
                *self._held_state(step),
            )
            shown = [replace(base, **one) for one in fields[:_N_SHOWN]]
            found.append((step, registered, shown or [base]))
        return len(steps), found

    def _attempts(self) -> Mapping[int, list[dict[str, Any]]]:
        """Returns what steps wait for at resources, by step, as fields of `WaitStatus`."""
        attempts: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for device, cell in self._cells():
            for attempt, reason in cell.waiting(_N_WAITS):
                waker = attempt.then
                if isinstance(waker, Waker):
                    op = waiting_op(waker.interpreter)
                    what = bounded_name(reason.removeprefix("waited ") or "for a resource")
                    attempts[waker.step].append({"cause": what, "op": op, "device": device})
        return attempts

    def _cells(self) -> Iterable[tuple[str, Cell]]:
        """Yields the cells at which steps may wait, with their devices; "" for the whole task."""
        containers = self._context.containers
        yield "", containers.accesses
        yield "", containers.writing
        for resource, cell in containers.resources.cells().items():
            yield str(resource.device), cell

    def _values(self, step: int, registered: RegisteredPlans) -> Iterable[dict[str, Any]]:
        """Yields the values for which a step waits, as fields of `WaitStatus`."""
        waiting = self._context.rendezvous.waiting(step)
        if not waiting:
            return
        stride = stride_of(linked.plan for linked in registered.plans)
        edges = {edge % stride for edge in waiting} if stride else waiting
        for linked in registered.plans:
            for one in linked.plan.all_instructions:
                if isinstance(one, Recv) and one.edge in edges:
                    source = one.source.task
                    is_own = source == self._context.task
                    what = f"for a value from {'another device of its task' if is_own else source}"
                    yield {"cause": what, "device": str(one.source), "edge": one.edge}

    def _busy_devices(self, step: int, registered: RegisteredPlans) -> Iterable[dict[str, Any]]:
        """Yields the busy devices for which a step waits, as fields of `WaitStatus`."""
        for linked in registered.plans:
            if step in self._context.devices.queued(linked.device):
                what = "for its device, which runs other programs"
                if abandoned := self._context.abandoned.describe(linked.device):
                    what = f"{what}, {abandoned}"
                yield {"cause": bounded_name(what), "device": str(linked.plan.device)}

    def _held_state(self, step: int) -> Iterable[dict[str, Any]]:
        """Yields the held state for which a step waits, as fields of `WaitStatus`."""
        held = self._gate.waiting.get(step)
        if held is not None and (what := self._gate.directory.obstacle(held.use)):
            yield {"cause": bounded_name(what)}
