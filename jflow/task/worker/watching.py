"""`RunningSteps`: the steps of a task and what they wait for, for its watchers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from jflow.base.deadline.clock import now
from jflow.plan import Recv
from jflow.state.moves import Gate
from jflow.state.resources import Cell
from jflow.state.watch import StatusRequest, StepStatus, WaitStatus, bounded_name
from jflow.task.execution.waiting import waiting_op
from jflow.task.worker.context import RegisteredPlans, WorkerContext
from jflow.task.worker.waker import Waker

_N_WAITS = 100
"""How many attempts on each resource are looked at: those at the head come first."""
_N_SHOWN = 20
"""How many waits of one step are shown."""


class RunningSteps:
    """The steps that have begun on a task and have not ended there, or were orphaned.

    What a step waits for is found from the resources, the rendezvous and the devices, so that steps
    note nothing for watchers but when they began. Call it on the event loop only.

    Args:
      context: what the plans of the task share.
      gate: what they wait at while the state that they use is moved.
    """

    def __init__(self, context: WorkerContext, gate: Gate) -> None:
        self._context = context
        self._gate = gate

    @property
    def n_begun(self) -> int:
        """How many steps have begun so far."""
        return self._context.rendezvous.n_opened

    def listed(self, request: StatusRequest) -> tuple[int, tuple[StepStatus, ...]]:
        """How many there are, and those that are requested; first those that were orphaned."""
        n_steps, page = self._page(request)
        return n_steps, tuple(
            StepStatus(
                f"{step:x}",
                found[0].age_s,
                tuple(str(linked.plan.device) for linked in registered.plans),
                tuple(wait.cause for wait in found if wait.cause),
                str(registered.master),
                "" if registered.claim is None else registered.claim.name,
                found[0].orphaned_s,
            )
            for step, registered, found in page
        )

    def list_waits(self, request: StatusRequest) -> tuple[int, tuple[WaitStatus, ...]]:
        """How many steps there are, and what those wait for that are requested, as `listed`.

        A step that waits for nothing is there once, and says so.
        """
        n_steps, page = self._page(request)
        return n_steps, tuple(wait for _, _, found in page for wait in found)

    def _page(
        self, request: StatusRequest
    ) -> tuple[int, list[tuple[int, RegisteredPlans, Sequence[WaitStatus]]]]:
        """How many steps there are, and the waits of those requested, at least one each.

        Those that were orphaned come first, then the others, each the oldest first.
        """
        orphaned, present = self._context.orphaned_steps(), now()
        started = [(at, step, found) for step, (at, found) in self._context.begun.items()]
        given_up = [(at, step, found) for step, (at, _, found) in orphaned.items()]
        steps = [
            *sorted(given_up, key=lambda one: one[0]),
            *sorted(started, key=lambda one: one[0]),
        ]
        page = steps[request.first : request.first + request.limit]
        attempts = self._attempts() if page else {}
        found: list[tuple[int, RegisteredPlans, Sequence[WaitStatus]]] = []
        for at, step, registered in page:
            bare = WaitStatus(f"{step:x}", registered.handle, max(present - at, 0.0))
            if step in orphaned:
                since = max(present - orphaned[step][1], 0.0)
                found.append((step, registered, [replace(bare, orphaned_s=since)]))
                continue
            noted = (
                *attempts.get(step, ()),
                *self._values(step, registered),
                *self._busy(step, registered),
                *self._held(step),
            )
            shown = [replace(bare, **one) for one in noted[:_N_SHOWN]]
            found.append((step, registered, shown or [bare]))
        return len(steps), found

    def _attempts(self) -> Mapping[int, list[dict[str, Any]]]:
        """What steps wait for at resources, by step, as fields of `WaitStatus`."""
        attempts: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for device, cell in self._cells():
            for attempt, reason in cell.waiting(_N_WAITS):
                waker = attempt.then
                if isinstance(waker, Waker) and waker.step is not None:
                    op = "" if waker.interpreter is None else waiting_op(waker.interpreter)
                    what = bounded_name(reason.removeprefix("waited ") or "for a resource")
                    attempts[waker.step].append({"cause": what, "op": op, "device": device})
        return attempts

    def _cells(self) -> Iterable[tuple[str, Cell]]:
        """What steps may wait for, each with its device, "" if it is of the whole task."""
        containers = self._context.containers
        yield "", containers.accesses
        yield "", containers.writing
        for resource, cell in containers.resources.cells().items():
            yield str(resource.device), cell

    def _values(self, step: int, registered: RegisteredPlans) -> Iterable[dict[str, Any]]:
        """What a step waits for from other tasks and devices, as fields of `WaitStatus`."""
        waiting = self._context.rendezvous.waiting(step)
        if not waiting:
            return
        for linked in registered.plans:
            for one in linked.plan.instructions:
                if isinstance(one, Recv) and one.edge in waiting:
                    source = one.source.task
                    is_own = source == self._context.task
                    what = f"for a value from {'another device of its task' if is_own else source}"
                    yield {"cause": what, "device": str(one.source), "edge": one.edge}

    def _busy(self, step: int, registered: RegisteredPlans) -> Iterable[dict[str, Any]]:
        """The devices that it waits for, which take no more programs now."""
        for linked in registered.plans:
            if step in self._context.devices.queued(linked.device):
                what = "for its device, which runs other programs"
                yield {"cause": what, "device": str(linked.plan.device)}

    def _held(self, step: int) -> Iterable[dict[str, Any]]:
        """The state that it waits for, because that is held."""
        held = self._gate.waiting.get(step)
        if held is not None and (what := self._gate.directory.obstacle(held.use)):
            yield {"cause": bounded_name(what)}
